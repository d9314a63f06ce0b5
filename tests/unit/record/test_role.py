"""The cluster role that the documentation gives is the one that a recording needs."""

from __future__ import annotations

from pathlib import Path

import yaml

from replay.kube.kinds import RESOURCES

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "record.md"


def test_the_documented_role_allows_each_resource_to_be_listed_and_watched() -> None:
    """No more and no less, beside usage."""
    text = DOCUMENT.read_text(encoding="utf-8").partition("```yaml\n")[2].partition("```")[0]
    allowed = {
        (group, resource)
        for rule in yaml.safe_load(text)["rules"]
        if rule["verbs"] == ["list", "watch"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    assert allowed == {(each.api_version.rpartition("/")[0], each.name) for each in RESOURCES}
