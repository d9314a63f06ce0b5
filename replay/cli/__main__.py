"""`reprieve` as a process: how it starts and ends is most of a short command's time."""

from __future__ import annotations

from services.garbage import collect_rarely
from services.process_end import ProcessEnd


def program() -> None:
    """Run the command line and end the process."""
    end = ProcessEnd()
    collect_rarely(young=1_000_000)  # Hundreds of modules are imported, and none is garbage.
    from replay.cli.main import main  # noqa: PLC0415 - after the above

    try:
        main()
    except SystemExit as ending:
        end.code = int(ending.code or 0)
        raise
    end.code = 0


if __name__ == "__main__":
    program()
