"""The rules that a replay follows where none are requested."""

from __future__ import annotations

import pytest

from replay.rule_versions import rules_of


@pytest.mark.parametrize(
    ("recorded", "rules"),
    [
        ("v1.36.2", "v1.36"),
        ("v1.37.0-rc.1", "v1.36"),
        ("v2.0.0", "v1.36"),
        ("v1.35.4", "v1.34"),
        ("v1.28.3+k3s1", "v1.34"),
        ("", ""),
        ("main", ""),
    ],
)
def test_the_nearest_rules_are_those_of_the_version_or_before(recorded: str, rules: str) -> None:
    """An unknown version chooses none."""
    assert rules_of(recorded) == rules
