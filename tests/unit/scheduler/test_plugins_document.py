"""docs/plugins.md: its plugin, when methods are called, and the members that it lists."""

# ruff: noqa: ARG002 - a plugin's methods have the arguments that they have

from __future__ import annotations

import re
import sys
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import replace

import pytest

from services.framework.runtime.diagnosis import Unschedulable
from services.kube.pod import Pod
from services.scheduler.core.decisions import Binding
from services.scheduler.core.plugin_api import (
    Code,
    FilterPlugin,
    Int64s,
    NodeView,
    PreFiltered,
    Scope,
    Snapshot,
    Status,
)
from services.typed import DataError
from tests.builders import make_node, make_pod
from tests.unit.scheduler.test_out_of_tree_plugins import EXAMPLES, decide, scheduler_of

DOCUMENT = (EXAMPLES.parents[1] / "docs" / "plugins.md").read_text(encoding="utf-8")
PROFILE = (EXAMPLES / "node_tier.yaml").read_text(encoding="utf-8")
FILE = PROFILE[PROFILE.index("profiles:") :]
TIER = "example.com/tier"
HERE = "tests.unit.scheduler.test_plugins_document"


class OfNode(FilterPlugin[None]):
    """Lets pods on every node; `calls` are the methods that were called, `filter` with its rows."""

    name = "OfNode"
    scope = Scope.NODE
    calls: list[str] = []  # noqa: RUF012 - emptied by each test

    def __init__(self, args: Mapping[str, object]) -> None:
        self.calls.append("factory")

    def filter_key(self, pod: Pod, snapshot: Snapshot) -> Hashable | None:
        """Return the same for all pods."""
        self.calls.append("key")
        return ""

    def pre_filter(self, pod: Pod, snapshot: Snapshot) -> PreFiltered[None]:
        """Prepare nothing."""
        self.calls.append("pre")
        return PreFiltered(data=None)

    def filter(self, data: None, snapshot: Snapshot, rows: Int64s, codes: Int64s) -> None:
        """Let all pass."""
        self.calls.append(f"rows {sorted(set(rows.tolist()))}")
        codes[rows] = 0

    def filter_node(self, data: None, view: NodeView) -> int:
        """Let all pass."""
        self.calls.append("node")
        return 0

    def filter_status(self, data: None, code: int) -> Status:
        """Return what no code stands for."""
        return Status(code=Code.UNSCHEDULABLE, plugin=self.name)


class OfPods(OfNode):
    """The same, which depends on the pods of a node, too."""

    name = "OfPods"
    scope = Scope.PODS


@pytest.fixture(autouse=True)
def _the_examples_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    yield
    sys.modules.pop("node_tier", None)


def blocks(language: str) -> list[str]:
    """Return the document's code blocks of a language."""
    return re.findall(rf"```{language}\n(.*?)```", DOCUMENT, re.DOTALL)


def test_the_document_quotes_the_example() -> None:
    """The plugin, the profile that enables it, and an excerpt of another one."""
    source = (EXAMPLES / "node_tier.py").read_text(encoding="utf-8")
    plugin, excerpt = blocks("python")
    assert plugin == source[source.index("from collections") :]
    assert blocks("yaml") == [PROFILE]
    other = (EXAMPLES / "reprieve_example_plugins.py").read_text(encoding="utf-8")
    header, _, rest = excerpt.partition("\n")
    parts = [header, *rest.split("\n\n")]
    assert [part for part in parts if part.strip("\n") not in other] == []


def test_the_documents_plugin_filters_and_scores_by_the_label() -> None:
    """Nodes of a tier without a score are refused, and pods that select a tier are left alone."""
    scheduler = scheduler_of(FILE, "node_tier:NodeTier")
    refused = decide(scheduler, "first").verdict
    assert isinstance(refused, Unschedulable)
    assert refused.plugins == ("NodeTier",)
    assert refused.reasons == ((f"node(s) had no tier in {TIER} that has a score", 2),)
    for name, tier in (("c", "slow"), ("d", "fast"), ("e", "slow"), ("f", "archive")):
        node = make_node(name).capacity(cpu="8", memory="8Gi").label(TIER, tier)
        scheduler.put_node(node.obj())
    scheduler.remove_node("c")
    bound = decide(scheduler, "second").verdict
    assert isinstance(bound, Binding)
    assert (bound.node_name, bound.feasible) == ("d", 2)
    selecting = make_pod("third").node_selector({TIER: "archive"}).obj()
    assert "NodeTier" in scheduler.evaluate(selecting, 1, 0).verdicts.skipped_filters


def test_the_documents_plugin_refuses_wrong_arguments() -> None:
    """With the path of the profile."""
    with pytest.raises(DataError, match="whole numbers up to 100"):
        scheduler_of(FILE.replace("100", "101"), "node_tier:NodeTier")


@pytest.mark.parametrize("plugin", [OfNode, OfPods])
def test_methods_are_called_as_documented(plugin: type[OfNode]) -> None:
    """For a new class, one with the same key, changed pods, dry runs and a changed node."""
    calls, by_pods = plugin.calls, plugin is OfPods

    def called() -> list[str]:
        found = calls[:]
        calls.clear()
        return found

    called()
    enabled = f"profiles: [{{plugins: {{multiPoint: {{enabled: [{{name: {plugin.name}}}]}}}}}}]\n"
    scheduler = scheduler_of(enabled, f"{HERE}:{plugin.name}")
    assert called() == ["factory", "factory"]
    expected = ["key", "pre", "rows [0, 1]"]
    for name in ("first", "second"):
        bound = decide(scheduler, name).verdict
        assert isinstance(bound, Binding)
        assert called() == expected
        expected = ["key", f"rows [{bound.row}]"] if by_pods else ["key"]
    large = make_pod("large").req(cpu="8").obj()
    large = replace(large, spec=replace(large.spec, priority=10))
    for before in (expected, []):
        assert scheduler.evaluate(large, 1, 0).preemption is not None
        found = called()
        assert found[: len(before)] == before
        assert set(found[len(before) :]) == ({"node"} if by_pods else set())
    scheduler.put_node(make_node("a").capacity(cpu="8", memory="8Gi").label(TIER, "fast").obj())
    scheduler.evaluate(replace(large, uid="another"), 1, 0)
    assert called()[0] == "rows [0]"


def test_the_members_that_the_document_lists_exist() -> None:
    """For `Snapshot`, its columns and `NodeView`."""
    snapshot = Snapshot()
    snapshot.set_node(make_node("a").obj())
    owners = {
        "Snapshot": snapshot,
        "Snapshot.columns": snapshot.columns,
        "NodeView": NodeView.of(snapshot, 0),
    }
    for name, owner in owners.items():
        rows = re.search(rf"^\| `{name}` \|.*\n\|.*\n((?:\|.*\n)+)", DOCUMENT, re.MULTILINE)
        assert rows is not None, name
        cells = [row.split(" | ")[0] for row in rows[1].splitlines()]
        members = [member for cell in cells for member in re.findall(r"`(\w+)(?:\(.*?\))?`", cell)]
        assert len(members) >= 6
        assert [member for member in members if not hasattr(owner, member)] == []
