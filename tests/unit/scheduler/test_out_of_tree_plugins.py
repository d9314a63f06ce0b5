"""Out-of-tree plugins: found, made, guarded; and the examples at work."""

# ruff: noqa: ARG002 - a plugin's methods have the arguments that they have

from __future__ import annotations

import sys
from collections.abc import Hashable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from services.framework.columns.columns import Int64s
from services.framework.plugin import (
    FilterPlugin,
    Normalization,
    Normalized,
    PodColumnsPlugin,
    PreFiltered,
    QueueSortPlugin,
    ReservePlugin,
    Scope,
    ScorePlugin,
)
from services.framework.plugins.in_tree import SERVED
from services.framework.runtime.diagnosis import Unschedulable
from services.framework.snapshot.node_view import NodeView
from services.framework.snapshot.snapshot import Snapshot
from services.framework.status import SUCCESS, Code, Status
from services.kube.pod import Pod, PodSpec
from services.scheduler.config.file import read_scheduler_configuration
from services.scheduler.core.decisions import Binding, Decision, Failed, MayWait
from services.scheduler.core.queueing.mirror import QUEUE_TRAITS
from services.scheduler.core.queueing.steps import Head, PopId
from services.scheduler.core.session.options import RULES, SchedulerOptions
from services.scheduler.core.session.scheduler import Scheduler
from services.scheduler.out_of_tree import PluginLoadError, registry_with
from services.typed import DataError
from tests.builders import make_node, make_pod

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "plugins"
EXAMPLE_PLUGINS = ("reprieve_example_plugins:PodDensity", "reprieve_example_plugins:OneOfEach")
HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
HERE = "tests.unit.scheduler.test_out_of_tree_plugins"


class Moody(FilterPlugin[None], ScorePlugin[None], ReservePlugin, PodColumnsPlugin):
    """Raises in the method that its arguments name."""

    name = "Moody"
    scope = Scope.PODS
    keys_follow_pod = True
    calm = False

    def __init__(self, args: Mapping[str, object]) -> None:
        self.raises = args.get("raises", "")
        self._may("init")

    def _may(self, method: str) -> None:
        if self.raises == method and not Moody.calm:
            raise KeyError("mood")

    def skips(self, spec: PodSpec) -> bool:
        """Skip no pod."""
        self._may("skips")
        return False

    def filter_key(self, pod: Pod, snapshot: Snapshot) -> Hashable | None:
        """Return a key for all pods."""
        self._may("filter_key")
        key: Any = [] if self.raises == "unhashable" else ""
        return key  # type: ignore[no-any-return] # a list is what the test is about

    def pre_filter(self, pod: Pod, snapshot: Snapshot) -> PreFiltered[None]:
        """Prepare nothing."""
        self._may("pre_filter")
        return PreFiltered(data=None)

    def filter_node(self, data: None, view: NodeView) -> int:
        """Let all pass."""
        self._may("filter")
        return 0

    def filter_status(self, data: None, code: int) -> Status:
        """Return what no code stands for."""
        return SUCCESS

    def score_key(self, pod: Pod, snapshot: Snapshot) -> Hashable | None:
        """Return a key for all pods."""
        self._may("score_key")
        return ""

    def pre_score(self, pod: Pod, snapshot: Snapshot) -> None:
        """Prepare nothing."""
        self._may("pre_score")

    def score(self, data: None, snapshot: Snapshot, rows: Any, scores: Any) -> None:
        """Write a score."""
        self._may("score")
        scores[rows] = 101 if self.raises == "range" else 1

    def reserve(self, pod: Pod, row: int, snapshot: Snapshot) -> Status | None:
        """Take nothing."""
        self._may("reserve")
        return None

    def unreserve(self, pod: Pod, row: int, snapshot: Snapshot) -> None:
        """Give nothing back."""
        self._may("unreserve")

    def pod_came(self, pod: Pod, row: int, snapshot: Snapshot) -> None:
        """Count nothing."""
        self._may("pod_came")

    def pod_went(self, pod: Pod, row: int, snapshot: Snapshot) -> None:
        """Count nothing."""


class Normalizes(Moody):
    """Raises while it normalizes its scores."""

    name = "Normalizes"
    normalization = Normalization.OWN

    def normalize(self, data: None, snapshot: Snapshot, rows: Int64s, raw: Int64s) -> Normalized:
        """Leave the scores as they are."""
        self._may("normalize")
        return Normalized(raw, raw)


class Slotted(QueueSortPlugin):
    """A plugin that sorts, with slots."""

    name = "Slotted"
    __slots__ = ()

    def __init__(self, args: Mapping[str, object]) -> None:
        """Take whatever there is."""

    def sort_key(self, pod: Pod) -> bytes:
        """Fail."""
        raise ValueError(pod.name)


class Waits(FilterPlugin[None]):
    """Refuses pods called "late" at PreFilter, in a way that deleting pods might help."""

    name = "Waits"
    scope = Scope.NODE

    def __init__(self, args: Mapping[str, object]) -> None:
        """Take whatever there is."""

    def filter_key(self, pod: Pod, snapshot: Snapshot) -> Hashable | None:
        """Return a key for each name."""
        return pod.name

    def pre_filter(self, pod: Pod, snapshot: Snapshot) -> PreFiltered[None]:
        """Refuse by name."""
        late = Status(code=Code.UNSCHEDULABLE, plugin="Waits", reasons=("too late",))
        return PreFiltered(data=None, refusal=late if pod.name == "late" else None)

    def filter_node(self, data: None, view: NodeView) -> int:
        """Let all pass."""
        return 0

    def filter_status(self, data: None, code: int) -> Status:
        """Return what no code stands for."""
        return SUCCESS


def scheduler_of(text: str, *plugins: str) -> Scheduler:
    """Return a scheduler of two nodes under a file's profiles."""
    registry = registry_with(plugins)
    file = read_scheduler_configuration(HEAD + text, registry)
    options = SchedulerOptions(
        rules=RULES["v1.34"], queue=QUEUE_TRAITS["v1.34"], profiles=file.profiles, seed=1
    )
    made = Scheduler(options, registry=registry)
    for name in "ab":
        made.put_node(make_node(name).capacity(cpu="8", memory="8Gi").obj())
    return made


def moody(raises: str) -> Scheduler:
    """Return a scheduler whose plugin raises in one method."""
    name = "Normalizes" if raises == "normalize" else "Moody"
    text = (
        f"profiles: [{{plugins: {{multiPoint: {{enabled: [{{name: {name}}}]}}}}, "
        f"pluginConfig: [{{name: {name}, args: {{raises: {raises}}}}}]}}]\n"
    )
    return scheduler_of(text, f"{HERE}:{name}")


def decide(scheduler: Scheduler, name: str, **labels: str) -> Decision:
    """Decide about a pod that has come."""
    pod = make_pod(name).req(cpu="1").obj()
    scheduler.put_pod(replace(pod, labels=labels))
    head = Head(pop=PopId(pod.uid, 1), attempts=1, first_enqueued_ns=0, queued_ns=0)
    return scheduler.decide(head, 0)


@pytest.mark.parametrize(
    ("raises", "said"),
    [
        ("skips", "running plugin \"Moody\": skips: KeyError: 'mood' (test_out_of"),
        ("filter_key", "running plugin \"Moody\": filter_key: KeyError: 'mood' (test_out_of"),
        ("unhashable", 'running plugin "Moody": filter_key: TypeError: unhashable'),
        ("pre_filter", 'running plugin "Moody": pre_filter: KeyError'),
        ("filter", 'running plugin "Moody": filter_node: KeyError'),
        ("score_key", 'running plugin "Moody": score_key: KeyError'),
        ("pre_score", 'running plugin "Moody": pre_score: KeyError'),
        ("score", 'running Score plugins: plugin "Moody" failed with: KeyError'),
        ("normalize", 'running plugin "Normalizes": normalize: KeyError'),
        ("range", 'plugin "Moody" failed with: returns an invalid score 101'),
        ("reserve", "running plugin 'Moody': running plugin \"Moody\": reserve: KeyError"),
    ],
)
def test_a_plugin_that_raises_fails_the_cycle_by_its_name(raises: str, said: str) -> None:
    """And once it has calmed down, the pod is bound."""
    scheduler = moody(raises)
    verdict = decide(scheduler, "one").verdict
    assert isinstance(verdict, Failed)
    assert said in verdict.message
    if raises in {"unhashable", "range"}:
        return
    Moody.calm = True
    try:
        assert isinstance(decide(scheduler, "two").verdict, Binding)
    finally:
        Moody.calm = False


@pytest.mark.parametrize("raises", ["score_key", "pre_score", "score", "normalize"])
def test_a_plugin_that_raises_while_it_scores_fails_no_cycle_that_scores_no_node(
    raises: str,
) -> None:
    """A single node that fits is taken without scores; where none fits, preemption is tried."""
    scheduler = moody(raises)
    scheduler.put_node(replace(make_node("b").obj(), unschedulable=True))
    judged = scheduler.evaluate(make_pod("one").req(cpu="1").obj(), 1, 0)
    assert (judged.error, judged.host, judged.fast_path) == ("", "a", "singleFeasibleNode")
    assert isinstance(decide(scheduler, "one").verdict, Binding)
    scheduler.remove_node("b")
    scheduler.put_pod(make_pod("whole").req(cpu="7").node("a").obj())
    refused = decide(scheduler, "two").verdict
    assert isinstance(refused, Unschedulable)
    assert "1 Insufficient cpu" in refused.message


def test_an_evaluation_reports_what_a_plugin_raises() -> None:
    """As its error, in place of verdicts."""
    found = moody("filter").evaluate(make_pod("seen").req(cpu="1").obj(), 1, 0)
    assert 'running plugin "Moody": filter_node: KeyError' in found.error


def test_what_a_plugin_raises_while_pods_come_fails_the_cycles_after() -> None:
    """For good: what it counts is wrong from then on."""
    scheduler = moody("pod_came")
    assert isinstance(decide(scheduler, "one").verdict, Binding)
    for name in ("two", "three"):
        verdict = decide(scheduler, name).verdict
        assert isinstance(verdict, Failed)
        assert 'running plugin "Moody": pod_came: KeyError' in verdict.message


def test_a_pod_that_pre_filter_refuses_may_preempt_where_deleting_pods_might_help() -> None:
    """All filters run on a node without its victims, though none has run on it before."""
    text = "profiles: [{plugins: {multiPoint: {enabled: [{name: Waits}]}}}]\n"
    scheduler = scheduler_of(text, f"{HERE}:Waits")
    scheduler.put_node(make_node("c").capacity(cpu="1m", memory="8Gi").obj())
    for name in "ab":
        low = make_pod(f"low-{name}").req(cpu="8").obj()
        scheduler.put_pod(replace(low, node_name=name))
    late = make_pod("late").req(cpu="1").obj()
    scheduler.put_pod(replace(late, spec=replace(late.spec, priority=10)))
    head = Head(pop=PopId(late.uid, 1), attempts=1, first_enqueued_ns=0, queued_ns=0)
    decision = scheduler.decide(head, 0)
    assert isinstance(decision.verdict, Unschedulable)
    assert decision.verdict.message == "0/3 nodes are available: too late."
    assert decision.nomination is not None
    assert decision.nomination.node in {"a", "b"}


def test_a_sort_that_raises_leaves_the_queues_own_order() -> None:
    """And fails one attempt, which says why; a plugin with slots is guarded like any other."""
    text = (
        "profiles: [{plugins: {queueSort: {enabled: [{name: Slotted}], disabled: [{name: '*'}]}}}]"
    )
    scheduler = scheduler_of(text, f"{HERE}:Slotted")
    assert scheduler.sort_key(make_pod("p").obj()) == b""
    verdict = decide(scheduler, "two").verdict
    assert isinstance(verdict, Failed)
    assert 'running plugin "Slotted": sort_key: ValueError: p' in verdict.message
    assert isinstance(decide(scheduler, "three").verdict, Binding)


def test_no_event_waits_to_be_sent_while_a_pod_waits_for_an_out_of_tree_plugin() -> None:
    """The queue has no hints for it."""
    scheduler = moody("")
    scheduler.put_pod(make_pod("p").req(cpu="1").obj())
    assert scheduler.may_wait() is MayWait.NOTHING


@pytest.mark.parametrize(
    ("plugin", "said"),
    [
        ("nonsense", "must be MODULE:NAME"),
        ("no.such.module:X", "ModuleNotFoundError"),
        (f"{HERE}:Nobody", "AttributeError"),
        ("services.framework.plugins.node_name.plugin:NodeName", "another plugin has that name"),
    ],
)
def test_a_plugin_that_cannot_be_loaded_is_named(plugin: str, said: str) -> None:
    """Before the service starts."""
    with pytest.raises(PluginLoadError, match=said):
        registry_with([plugin])


def test_arguments_that_a_plugin_refuses_are_refused_with_the_profile() -> None:
    """By whatever its factory raises."""
    with pytest.raises(DataError, match="plugin \"Moody\": 'mood'") as caught:
        moody("init")
    assert caught.value.field == "profiles[0].plugins"


def test_an_unknown_plugin_stays_unknown() -> None:
    """The error names the path."""
    with pytest.raises(DataError) as caught:
        read_scheduler_configuration(HEAD + "profiles: [{pluginConfig: [{name: X}]}]", SERVED)
    assert caught.value.field == "profiles[0].pluginConfig[0].name"


def test_the_examples_filter_and_score(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of each app on a node, no node above two pods, the emptiest first."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    text = (EXAMPLES / "scheduler.yaml").read_text(encoding="utf-8").partition("\n")[2]
    text = text.partition("\n")[2]
    scheduler = scheduler_of(text, *EXAMPLE_PLUGINS)
    first = [decide(scheduler, f"web-{i}", app="web").verdict for i in range(3)]
    assert [isinstance(verdict, Binding) for verdict in first] == [True, True, False]
    assert isinstance(first[2], Unschedulable)
    assert first[2].reasons == (("node(s) had a pod of app=web already", 2),)
    others = [decide(scheduler, f"db-{i}").verdict for i in range(3)]
    assert [isinstance(verdict, Binding) for verdict in others] == [True, True, False]
    assert isinstance(others[2], Unschedulable)
    assert others[2].reasons == (("node(s) had 2 pods already", 2),)
    assert others[2].plugins == ("PodDensity",)
    sys.modules.pop("reprieve_example_plugins", None)
