"""`python -m replay.generate --preset NAME -o FILE`: write a preset's trace."""

from __future__ import annotations

import argparse

from replay.generate.presets import PRESETS
from replay.trace.writer import write


def main() -> None:
    """Read the command line and write the trace."""
    parser = argparse.ArgumentParser(prog="python -m replay.generate", description=__doc__)
    parser.add_argument("--preset", choices=sorted(PRESETS), required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-o", "--output", required=True, help="a .ktr or .jsonl file")
    options = parser.parse_args()
    write(options.output, PRESETS[options.preset](options.seed))


if __name__ == "__main__":
    main()
