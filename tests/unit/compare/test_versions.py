"""By which rules a recording is also judged."""

from __future__ import annotations

import pytest

from replay.compare.comparison import changed_rules


@pytest.mark.parametrize(
    ("recorded", "rules", "changed"),
    [
        ("v1.36.2", "v1.34", "v1.36"),
        ("v1.37.0-rc.1", "", "v1.36"),
        ("v1.35.4", "v1.34", ""),
        ("v1.36.2", "v1.36", ""),
        ("v1.36.2", "v1.16", ""),
        ("", "v1.34", ""),
        ("of our own", "v1.34", ""),
    ],
)
def test_later_recordings_are_also_judged_by_their_own_rules(
    recorded: str, rules: str, changed: str
) -> None:
    """Where v1.34's are in force, and the version is known."""
    assert changed_rules(recorded, rules) == changed
