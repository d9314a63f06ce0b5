"""Write the pictures of README.md, docs/pictures, from the bundled examples: `make pictures`.

Usage: python -m docs.make_pictures. It needs chromium and chromium-driver, for the report.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

from tests.e2e.browser import chromium

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ROOT / "docs" / "pictures"
SHOP = ROOT / "examples" / "recordings" / "shop"
FOUR_TIERS = ROOT / "examples" / "traces" / "four-tiers.ktr"
WIDTH = 100
NEVER = "--set priorityClass.checkout.preemptionPolicy=Never"
COMPARE = f"reprieve compare shop.ktr --b '{NEVER}' --run polite"
EXPLAIN = "reprieve explain checkout-1 polite/a --attempt 1"
_SHOWN = {"compare": (COMPARE, "FIGURE"), "explain": (EXPLAIN, "Reprieved pods")}
"""The command of each picture, and the beginning of the first line that is left out."""
_FONTS = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)


def terminals() -> dict[str, str]:
    """Return the pictures of `compare` and `explain`, as SVG by name."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _reprieve(folder, f"reprieve record --from {shlex.quote(str(SHOP))} -o shop.ktr")
        return {
            picture: _svg(picture, command, _reprieve(folder, command).split(f"\n{until}")[0])
            for picture, (command, until) in _SHOWN.items()
        }


def _reprieve(folder: Path, command: str) -> str:
    arguments = [sys.executable, "-P", "-m", "replay.cli", *shlex.split(command)[1:]]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": str(WIDTH)}
    done = subprocess.run(  # noqa: S603 - the project's own command
        arguments, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout


def _svg(name: str, command: str, output: str) -> str:
    """Return a terminal with a command and its output; it loads no font."""
    console = Console(record=True, width=WIDTH, file=io.StringIO())
    console.print(Text(f"$ {command}", style="bold"))
    console.print(Text(output.rstrip() + "\n..."))
    return _FONTS.sub("", console.export_svg(title="", unique_id=name))


def report() -> bytes:
    """Return the picture of the beginning of a report, as PNG."""
    with tempfile.TemporaryDirectory() as name, chromium() as browser:
        folder = Path(name)
        trace = shlex.quote(str(FOUR_TIERS))
        _reprieve(folder, f"reprieve replay {trace} --run four-tiers --spans off -q")
        browser.look(width=1200, height=745, scheme="light")
        browser.open(folder / "four-tiers" / "report.html")
        browser.settle()
        return browser.photograph()


def main() -> None:
    """Write all pictures."""
    PICTURES.mkdir(exist_ok=True)
    for name, svg in terminals().items():
        (PICTURES / f"{name}.svg").write_text(svg, encoding="utf-8")
    (PICTURES / "report.png").write_bytes(report())


if __name__ == "__main__":
    main()
