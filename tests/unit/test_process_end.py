"""A process that ends without clearing its modules still does all that its end has to do."""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
import atexit, sys, threading, time
from services.process_end import ProcessEnd
end = ProcessEnd()
class Kept:
    def __del__(self):
        print("cleared")
kept = Kept()
atexit.register(print, "handler")
threading.Thread(target=lambda: (time.sleep(0.05), print("thread"))).start()
end.code = {code}
print("main")
"""


def _ended(code: str) -> tuple[int, list[str]]:
    program = _PROGRAM.format(code=code)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout.split()


def test_threads_and_exit_handlers_end_before_the_process_and_modules_are_not_cleared() -> None:
    """All output is written, and the exit code is the one that was set."""
    assert _ended("3") == (3, ["main", "thread", "handler"])


def test_without_a_code_the_process_ends_as_usual() -> None:
    """So it does after an error, whose traceback Python prints."""
    assert _ended("None") == (0, ["main", "thread", "handler", "cleared"])
