"""Processes that replay again and again keep what is in use, and a bounded amount of garbage."""

from __future__ import annotations

import gc
import subprocess
import sys

LOOP = """
import gc
from services.garbage import calm
class Cycle:
    def __init__(self):
        self.own = self
most = 0
for _ in range(40):
    calm(young=10**6)
    most = max(most, gc.get_freeze_count())
    for _ in range(10_000):
        Cycle()
print(most)
"""


def test_what_former_replays_left_is_collected_when_it_is_as_much_as_is_in_use() -> None:
    """Forty rounds leave 800,000 objects (a cycle and its dict), of which few are kept."""
    done = subprocess.run([sys.executable, "-c", LOOP], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 100_000


def test_objects_in_use_are_not_visited_again() -> None:
    """They are excluded when a replay begins."""
    code = "import gc; from services.garbage import calm; calm(); print(len(gc.get_objects()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) < len(gc.get_objects())
    assert int(done.stdout) < 1000
