"""The extension points, with plugins made for the test."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

import pytest

from services.cel.selectors import DeviceSelectors
from services.framework.plugin import (
    BindPlugin,
    FilterPlugin,
    PermitPlugin,
    PostBindPlugin,
    PreBindPlugin,
    PreFiltered,
    ReservePlugin,
    Scope,
    ScorePlugin,
    StatefulPlugin,
)
from services.framework.plugins.in_tree import SERVED, with_selectors
from services.framework.profile import PluginSetting, Profile
from services.framework.runtime.diagnosis import pre_filter_outcome
from services.framework.runtime.failed_cycle import FitError
from services.framework.runtime.framework import Framework, Held, NotBound
from services.framework.snapshot.node_view import NodeView
from services.framework.snapshot.snapshot import Snapshot
from services.framework.status import SUCCESS, Code, Status
from services.framework.waiting_pods import Wait
from services.kube.devices import DeviceClass
from services.kube.pod import Pod, PodClaim, PodSpec
from services.kube.volumes import ClaimSource, Volume
from services.scheduler.core.cycle.attempt import ProfileCycles
from services.scheduler.core.cycle.host_choice import KeyedChoice
from services.scheduler.core.decisions import Binding
from services.scheduler.core.session.options import RULES
from tests.builders import make_node, make_pod
from tests.cycles import dry_run_on, filter_verdicts


class OnePodANode(FilterPlugin[None], ReservePlugin):
    """Keeps a column of its own and looks at one node at a time."""

    name = "OnePodANode"
    scope = Scope.PODS

    def filter_key(self, pod: Pod, snapshot: Snapshot) -> Hashable | None:  # noqa: ARG002 - unused
        """Every pod is alike."""
        return ""

    def pre_filter(self, pod: Pod, snapshot: Snapshot) -> PreFiltered[None]:  # noqa: ARG002 - unused
        """Nothing to prepare."""
        return PreFiltered(data=None)

    def filter_node(self, data: None, view: NodeView) -> int:  # noqa: ARG002 - unused
        """Refuse a reserved node."""
        row = view.snapshot.row(view.node.name)
        return int(view.snapshot.columns.owned("taken")[row])

    def filter_status(self, data: None, code: int) -> Status:  # noqa: ARG002 - unused
        """Say so."""
        return Status(code=Code.UNSCHEDULABLE, plugin=self.name, reasons=("taken",))

    def reserve(self, pod: Pod, row: int, snapshot: Snapshot) -> Status | None:
        """Take the node."""
        if pod.name == "unwanted":
            return Status(code=Code.UNSCHEDULABLE, plugin=self.name, reasons=("unwanted",))
        snapshot.columns.owned("taken")[row] = 1
        snapshot.touch(row)
        return None

    def unreserve(self, pod: Pod, row: int, snapshot: Snapshot) -> None:  # noqa: ARG002 - unused
        """Give it back."""
        snapshot.columns.owned("taken")[row] = 0
        snapshot.touch(row)


class Late(PermitPlugin, PreBindPlugin, BindPlugin, PostBindPlugin):
    """Answers as the pod's name says, and remembers what was bound."""

    name = "Late"
    bound: list[str]

    def __init__(self) -> None:
        self.bound = []

    def permit(self, pod: Pod, row: int, snapshot: Snapshot) -> Wait | None:  # noqa: ARG002 - unused
        """Hold pods named wait."""
        return Wait(7) if pod.name == "wait" else None

    def pre_bind(self, pod: Pod, node_name: str) -> Status | None:  # noqa: ARG002 - unused
        """Fail for pods named broken."""
        return Status(code=Code.ERROR, plugin=self.name) if pod.name == "broken" else None

    def bind(self, pod: Pod, node_name: str) -> Status:  # noqa: ARG002 - unused
        """Skip all others."""
        return SUCCESS if pod.name == "mine" else Status(code=Code.SKIP)

    def post_bind(self, pod: Pod, node_name: str) -> None:
        """Remember."""
        self.bound.append(f"{pod.name}@{node_name}")


class ForHostNetwork(OnePodANode):
    """Has something to do for pods with hostNetwork alone."""

    def skips(self, spec: PodSpec) -> bool:
        """Skip all others."""
        return not spec.host_network


def framework(*names: str) -> Framework:
    """Return a framework over two nodes with the named plugins."""
    snapshot = Snapshot()
    for name in "ab":
        snapshot.set_node(make_node(name).capacity(cpu="4", memory="8Gi").obj())
    profile = Profile(plugins=tuple(PluginSetting(name=name) for name in names))
    return Framework(snapshot, profile, {**SERVED, "OnePodANode": OnePodANode, "Late": Late})


def test_a_plugin_that_knows_single_nodes_only_is_lifted_to_rows_and_owns_a_column() -> None:
    """Reserve changes the column, and the cached verdicts follow."""
    made = framework("OnePodANode", "NodeResourcesFit")
    cycles = ProfileCycles(made, KeyedChoice(0))
    taken = set()
    for _ in range(2):
        result = cycles.schedule_pod(make_pod().obj(), 1)
        assert isinstance(result, Binding)
        assert made.reserve(make_pod().obj(), result.row) is None
        taken.add(result.node_name)
    assert taken == {"a", "b"}
    assert isinstance(cycles.schedule_pod(make_pod().obj(), 1), FitError)
    made.unreserve(make_pod().obj(), 0)
    assert isinstance(cycles.schedule_pod(make_pod().obj(), 1), Binding)


def test_a_plugin_that_skips_a_pods_spec_reserves_nothing_for_it() -> None:
    """Its Reserve is called for the pods of other specs alone."""
    snapshot = Snapshot()
    snapshot.set_node(make_node("a").obj())
    profile = Profile(plugins=(PluginSetting(name="OnePodANode"),))
    made = Framework(snapshot, profile, {**SERVED, "OnePodANode": ForHostNetwork})
    skipped = make_pod().obj()
    served = replace(skipped, spec=replace(skipped.spec, host_network=True))
    taken = [
        made.reserve(pod, 0) or int(snapshot.columns.owned("taken")[0]) for pod in (skipped, served)
    ]
    assert taken == [0, 1]


_SPECS = {
    "plain": PodSpec(),
    "claim": PodSpec(volumes=(Volume(name="v", source=ClaimSource(claim_name="c")),)),
    "devices": PodSpec(device_claims=(PodClaim(name="gpu", claim_name="gpu"),)),
    "extended resource": make_pod().req({"example.com/gpu": "1"}).obj().spec,
}
_SKIPPED_OF_EACH = {
    ("v1.34", "plain"): 5,
    ("v1.34", "claim"): 1,
    ("v1.34", "devices"): 4,
    ("v1.34", "extended resource"): 5,
    ("v1.36", "plain"): 5,
    ("v1.36", "claim"): 1,
    ("v1.36", "devices"): 4,
    ("v1.36", "extended resource"): 4,
}


@pytest.mark.parametrize(("version", "named"), _SKIPPED_OF_EACH)
def test_in_tree_plugins_skip_specs_for_which_they_do_nothing(version: str, named: str) -> None:
    """Of volumes or of devices, whatever the cluster has: no keys, and nothing reserved."""
    rules, snapshot = RULES[version], Snapshot()
    snapshot.set_node(make_node("a").capacity(cpu="4").obj())
    snapshot.catalog.devices.put(DeviceClass(name="gpu", extended_resource_name="example.com/gpu"))
    registry = with_selectors({**SERVED, **rules.plugins}, DeviceSelectors(multiple=True))
    made = Framework(snapshot, rules.profile, registry)
    pod = Pod(uid="p", namespace="default", name="p", spec=_SPECS[named])
    skipping = [plugin for plugin in made.plugins if plugin.skips(pod.spec)]
    assert len(skipping) == _SKIPPED_OF_EACH[version, named]
    for plugin in skipping:
        if isinstance(plugin, FilterPlugin):
            assert plugin.filter_key(pod, snapshot) is None, plugin.name
        if isinstance(plugin, ScorePlugin):
            assert plugin.score_key(pod, snapshot) is None, plugin.name
        if isinstance(plugin, ReservePlugin):
            assert plugin.reserve(pod, 0, snapshot) is None, plugin.name
        if isinstance(plugin, StatefulPlugin):
            assert plugin.saved_state(snapshot) == [], plugin.name
        if isinstance(plugin, PreBindPlugin):
            assert plugin.pre_bind(pod, "a") is None, plugin.name


def test_a_refused_reservation_is_undone() -> None:
    """Every plugin of the point is unreserved."""
    made = framework("OnePodANode")
    made.reserve(make_pod().obj(), 0)
    refused = made.reserve_and_bind(make_pod("unwanted").obj(), 0, "a", lambda _pod, _node: None)
    assert isinstance(refused, NotBound)
    assert (refused.status.reasons, refused.in_binding) == (("unwanted",), False)
    assert made.snapshot.columns.owned("taken")[0] == 0


def test_permit_pre_bind_bind_and_post_bind_run_the_plugins() -> None:
    """Waits, errors and skips have their effect; the default binder binds what is left."""
    made = framework("Late", "DefaultBinder")
    assert made.permit(make_pod("wait").obj(), 0) == Held({"Late": 7})
    assert made.permit(make_pod().obj(), 0) is None
    broken = made.pre_bind(make_pod("broken").obj(), "a")
    assert broken is not None
    assert broken.code is Code.ERROR
    assert made.bind(make_pod("mine").obj(), "a") is SUCCESS
    assert made.bind(make_pod("other").obj(), "a") is SUCCESS
    assert framework("Late").bind(make_pod("other").obj(), "a").code is Code.SKIP
    made.post_bind(make_pod("mine").obj(), "a")
    late = made.plugins[0]
    assert isinstance(late, Late)
    assert late.bound == ["mine@a"]


def test_a_plugin_that_is_not_served_is_passed_over() -> None:
    """Its room stays in the profile."""
    names = [plugin.name for plugin in framework("NobodysPlugin", "NodeName").plugins]
    assert names == ["NodeName"]


def test_resources_alone_are_in_the_way_of_most_pods() -> None:
    """A pod with host ports has a filter before that pods change, which is no bound."""
    made = framework("NodePorts", "NodeResourcesFit")
    rows = made.snapshot.rows_in_order()
    assert filter_verdicts(made, make_pod().req(cpu="1").obj()).bounded(rows) == []
    assert filter_verdicts(made, make_pod().host_port(80).obj()).bounded(rows) is None


def test_plugins_that_name_no_node_in_common_refuse_the_pod() -> None:
    """With both their names."""
    answers = [
        (name, PreFiltered(data=None, node_names=frozenset({node})))
        for name, node in [("B", "x"), ("A", "y")]
    ]
    refusal = pre_filter_outcome(answers).refusal
    assert refusal is not None
    assert refusal.reasons == ("node(s) didn't satisfy plugin(s) [A B] simultaneously",)


def test_an_unresolvable_refusal_ends_pre_filter_and_a_curable_one_does_not() -> None:
    """The last curable one is kept."""
    curable = Status(code=Code.UNSCHEDULABLE, plugin="A", reasons=("a",))
    final = Status(code=Code.UNSCHEDULABLE_AND_UNRESOLVABLE, plugin="B", reasons=("b",))
    first, second = PreFiltered(data=None, refusal=curable), PreFiltered(data=None, refusal=final)
    assert pre_filter_outcome([("A", first), ("B", second)]).refusal == final
    assert pre_filter_outcome([("A", first)]).refusal == curable


def test_a_dry_run_changes_its_own_view_only() -> None:
    """Pods go and come; the snapshot stays."""
    made = framework("NodePorts", "NodeResourcesFit")
    snapshot = made.snapshot
    holders = [make_pod(name).req(cpu="2").node("a").obj() for name in "xyz"]
    for holder in holders:
        snapshot.set_pod(holder)
    row = snapshot.row("a")
    assert row is not None
    run = dry_run_on(made, make_pod("new").req(cpu="2").obj(), row)
    refused = run.refusal()
    assert refused is not None
    assert refused.reasons == ("Insufficient cpu",)
    run.remove(holders[0])
    assert [pod.name for pod in run.pods()] == ["z", "y"]
    assert run.refusal() is not None
    run.remove(holders[1])
    assert run.refusal() is None
    run.add(holders[1])
    assert run.refusal() is not None
    assert [pod.name for pod in snapshot.pods_on(row)] == ["x", "y", "z"]


def test_old_shapes_make_room_for_new_ones() -> None:
    """The cache of shapes is bounded."""
    made = framework("NodeResourcesFit")
    first = make_pod("first").req(cpu="1").obj()
    verdicts = filter_verdicts(made, first)
    assert filter_verdicts(made, first) is verdicts
    made.verdicts.classes_max = 2
    filter_verdicts(made, make_pod().obj())
    filter_verdicts(made, make_pod().obj())
    assert filter_verdicts(made, first) is not verdicts
