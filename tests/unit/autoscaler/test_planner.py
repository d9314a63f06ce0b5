"""Removals as the planner simulates them."""

from __future__ import annotations

from services.autoscaler.core.groups import Cloud, Instance, NodeGroup
from services.autoscaler.core.objects import ReplicaController
from services.autoscaler.core.options import Options
from services.autoscaler.core.scale_down.disruptions import RemainingBudgets
from services.autoscaler.core.scale_down.drainability import Controllers
from services.autoscaler.core.scale_down.planner import Planner
from services.autoscaler.core.scale_down.reasons import Reason
from services.autoscaler.core.simulator.snapshot import ClusterSnapshot
from services.kube.node import LABEL_HOSTNAME
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
from tests.unit.autoscaler.builders import make_node, make_pod, make_spec

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
    """Of two nodes whose pods one budget guards, either may go, whoever was judged before."""
    budget = PodDisruptionBudget(
        namespace="default",
        name="b",
        selector=LabelSelector(requirements=(APP,)),
        disruptions_allowed=1,
    )
    cluster = _Cluster([make_spec(100)], (budget,))
    assert cluster.reasons(["a", "b"], MINUTE_NS) == {"b": Reason.BLOCKED_BY_POD}
    assert cluster.reasons(["b", "a"], 10 * MINUTE_NS) == {"a": Reason.BLOCKED_BY_POD}


def reasons(specs: list[PodSpec]) -> dict[str, Reason]:
    """Return why node "a" with pods of those specs cannot go."""
    return _Cluster(specs).reasons(["a"], MINUTE_NS)


class _Cluster:
    """Node "a" with pods of those specs, and "b" and "c" with as many plain ones."""

    def __init__(self, specs: list[PodSpec], budgets: tuple[PodDisruptionBudget, ...] = ()) -> None:
        self.nodes = {name: make_node(name) for name in ("a", "b", "c")}
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
            now_ns=now_ns,
        )
        unremovable = self.planner.unremovable.reasons
        return {name: found.reason for name, found in unremovable.items()}
