"""Removals as the planner simulates them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from services.autoscaler.core.groups import Cloud, Instance, NodeGroup
from services.autoscaler.core.now import Now
from services.autoscaler.core.objects import ClusterPod, ReplicaController
from services.autoscaler.core.options import Options
from services.autoscaler.core.scale_down.disruptions import RemainingBudgets
from services.autoscaler.core.scale_down.drainability import Controllers
from services.autoscaler.core.scale_down.kept_removals import KeptRemovals, Removal
from services.autoscaler.core.scale_down.planner import Planner
from services.autoscaler.core.scale_down.reasons import Reason
from services.autoscaler.core.scale_down.unneeded import RemovableNode
from services.autoscaler.core.simulator.hinting import HintingSimulator
from services.autoscaler.core.simulator.snapshot import ClusterSnapshot
from services.kube.node import LABEL_HOSTNAME, LABEL_ZONE
from services.kube.pod import PodSpec
from services.kube.selector import (
    LabelSelector,
    Operator,
    Requirement,
    TopologySpreadConstraint,
    UnsatisfiableAction,
)
from services.kube.time import MINUTE_NS
from services.kube.workloads import PodDisruptionBudget
from tests.unit.autoscaler.builders import EMPTY, make_node, make_pod, make_spec

APP = Requirement(key="app", operator=Operator.IN, values=("x",))
CONTROLLER = ReplicaController(kind="ReplicaSet", namespace="default", name="owner")


def test_a_node_that_is_drained_counts_as_an_empty_domain() -> None:
    """Its pods, spread over hosts, may then not go where there are some; plain ones may."""
    spread = TopologySpreadConstraint(
        max_skew=1,
        topology_key=LABEL_HOSTNAME,
        when_unsatisfiable=UnsatisfiableAction.DO_NOT_SCHEDULE,
        selector=LabelSelector(requirements=(APP,)),
    )
    spreading, plain = make_spec(100, spread=(spread,)), make_spec(100)
    assert reasons([spreading]) == {"a": Reason.NO_PLACE_TO_MOVE_PODS}
    assert reasons([plain]) == {}


def test_a_node_is_judged_anew_when_more_of_a_budget_is_left() -> None:
    """Of two nodes whose pods one budget guards, either may go, whichever was judged before."""
    budget = PodDisruptionBudget(
        namespace="default",
        name="b",
        selector=LabelSelector(requirements=(APP,)),
        disruptions_allowed=1,
    )
    cluster = _Cluster([make_spec(100)], (budget,))
    assert cluster.reasons(["a", "b"], MINUTE_NS) == {"b": Reason.BLOCKED_BY_POD}
    assert cluster.reasons(["b", "a"], 10 * MINUTE_NS) == {"a": Reason.BLOCKED_BY_POD}


def test_a_removal_is_judged_anew_when_a_pod_should_have_been_gone() -> None:
    """A pod that is being deleted is moved while its grace period runs, and ignored later."""
    going = make_pod("p", node="a", deletion_ns=MINUTE_NS)
    cluster = _Cluster([], pods=[going])
    moved = []
    for now_ns in (MINUTE_NS, MINUTE_NS + 1, 10 * MINUTE_NS):
        assert cluster.reasons(["a"], now_ns) == {}
        moved.append(cluster.planner.unneeded.by_name["a"].removable.pods)
    assert moved == [(going,), (going,), ()]


def test_a_node_whose_removal_is_repeated_is_gone_for_the_next_one() -> None:
    """Its zone is no domain then, where it was the only node of it."""
    spread = TopologySpreadConstraint(
        max_skew=1,
        topology_key=LABEL_ZONE,
        when_unsatisfiable=UnsatisfiableAction.DO_NOT_SCHEDULE,
        selector=LabelSelector(requirements=(APP,)),
    )
    labels = {"app": "x"}
    pods = [
        make_pod("p", make_spec(100, spread=(spread,)), node="b", labels=labels),
        make_pod("q", node="c", labels=labels),
    ]
    cluster = _Cluster([], pods=pods, zones={"a": "1", "b": "2", "c": "2"})
    assert cluster.reasons(["a"], MINUTE_NS) == {}
    assert cluster.reasons(["a", "b"], 2 * MINUTE_NS) == {}


def test_a_removal_is_repeated_only_where_hints_lead_its_pods_to_the_same_places() -> None:
    """In a scan that begins the same, and in the order of the last one."""
    pod = make_pod("p", node="a")
    removal = Removal(
        removable=RemovableNode(node=make_node("a"), pods=(pod,)), placed=((pod, "b"),), until_ns=9
    )

    def repeated(name: str, place: str, beginning: int = 1) -> bool:
        kept = KeptRemovals()
        kept.begin(1)
        kept.add(removal)
        kept.begin(beginning)
        hints = HintingSimulator(old={"uid-p": place})
        return kept.repeated(name, hints, Now(9)) is not None and hints.current == {"uid-p": "b"}

    assert repeated("a", "b")
    assert not repeated("a", "c")
    assert not repeated("b", "b")
    assert not repeated("a", "b", beginning=2)


def reasons(specs: list[PodSpec]) -> dict[str, Reason]:
    """Return why node "a" with pods of those specs cannot go."""
    return _Cluster(specs).reasons(["a"], MINUTE_NS)


class _Cluster:
    """Node "a" with pods of those specs, "b" and "c" with as many plain ones, and further pods."""

    def __init__(
        self,
        specs: list[PodSpec],
        budgets: tuple[PodDisruptionBudget, ...] = (),
        *,
        pods: Iterable[ClusterPod] = (),
        zones: Mapping[str, str] = EMPTY,
    ) -> None:
        self.nodes = {
            name: make_node(name, labels={LABEL_ZONE: zones.get(name, "")})
            for name in ("a", "b", "c")
        }
        self.budgets = budgets
        self.pods = [
            make_pod(
                f"{name}{number}",
                spec if name == "a" else make_spec(100),
                node=name,
                labels={"app": "x"},
            )
            for name in self.nodes
            for number, spec in enumerate(specs)
        ]
        self.pods += pods
        self.snapshot, cloud = ClusterSnapshot(), Cloud()
        instances = tuple(Instance(provider_id=node.provider_id) for node in self.nodes.values())
        template = self.nodes["a"]
        cloud.put(
            NodeGroup(
                name="g", min_size=0, max_size=9, target=3, template=template, instances=instances
            )
        )
        self.planner = Planner(cloud=cloud, options=Options())

    def reasons(self, candidates: list[str], now_ns: int) -> dict[str, Reason]:
        """Update the plan, and return why candidates cannot go."""
        nodes = list(self.nodes.values())
        self.snapshot.set_state(nodes, self.pods)
        self.planner.update(
            self.snapshot,
            nodes,
            [self.nodes[name] for name in candidates],
            deleting=(),
            budgets=RemainingBudgets(self.budgets),
            controllers=Controllers(by_kind={("ReplicaSet", "default/owner"): CONTROLLER}),
            now=Now(now_ns),
        )
        unremovable = self.planner.unremovable.reasons
        return {name: found.reason for name, found in unremovable.items()}
