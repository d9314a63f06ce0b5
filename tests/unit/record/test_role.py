"""The roles and effects in the documentation are those of a recording."""

from __future__ import annotations

from pathlib import Path

import yaml

from replay.kube.kinds import CLUSTER_SCOPED, RESOURCES
from replay.record.coverage import EFFECTS

ROOT = Path(__file__).resolve().parents[3]
DOCUMENT = ROOT / "docs" / "record.md"
DEPLOYED = ROOT / "deploy" / "kubernetes" / "record" / "cluster-role.yaml"


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
    assert allowed == {(resource.group, resource.name) for resource in RESOURCES}


def test_the_documented_role_of_a_namespace_allows_each_namespaced_resource() -> None:
    """No more and no less, beside the namespace itself and usage; the binding names the role."""
    text = DOCUMENT.read_text(encoding="utf-8").split("```yaml\n")[2].partition("```")[0]
    role, binding = yaml.safe_load_all(text)
    allowed = {
        (group, resource)
        for rule in role["rules"]
        if rule["verbs"] == ["list", "watch"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    scoped = [resource for resource in RESOURCES if resource.kind not in CLUSTER_SCOPED]
    assert allowed == {(resource.group, resource.name) for resource in scoped}
    assert binding["roleRef"]["name"] == role["metadata"]["name"]


def test_the_documented_effects_are_those_of_the_notes() -> None:
    """A row for each kind, in the same order."""
    text = DOCUMENT.read_text(encoding="utf-8").partition("| Not recorded | Effect |\n|---|---|\n")[
        2
    ]
    rows = [line.strip("| ").split(" | ") for line in text.partition("\n\n")[0].splitlines()]
    assert rows == [[kind, effect] for kind, effect in EFFECTS.items()]


def test_the_deployed_role_is_the_documented_one() -> None:
    """Beside rights to nodes/proxy, which the deployed recorder does not use."""
    text = DOCUMENT.read_text(encoding="utf-8").partition("```yaml\n")[2].partition("```")[0]
    deployed = next(yaml.safe_load_all(DEPLOYED.read_text(encoding="utf-8")))
    documented = [
        rule for rule in yaml.safe_load(text)["rules"] if "nodes/proxy" not in rule["resources"]
    ]
    assert deployed["rules"] == documented
