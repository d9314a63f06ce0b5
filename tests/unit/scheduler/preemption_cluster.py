"""A small cluster whose only filter is resources, as the preemptor sees it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from services.framework.status import Code, Status
from services.kube.pod import Pod
from services.kube.requests import pod_requests
from services.kube.workloads import PodDisruptionBudget


@dataclass(slots=True, kw_only=True)
class Cluster:
    """Nodes by name with what they can hold ("pods" included), and the pods on them.

    `codes` says how the filters refused the pending pod where it was not UNSCHEDULABLE.
    """

    pod: Pod
    allocatable: Mapping[str, Mapping[str, int]]
    assigned: Sequence[Pod] = ()
    nominated: Sequence[Pod] = ()
    all_budgets: Sequence[PodDisruptionBudget] = ()
    codes: Mapping[str, Code] = field(default_factory=dict)
    gone: frozenset[str] = frozenset()

    def refused_by(self, plugin: str, reason: str) -> Sequence[str]:  # noqa: ARG002 - as in the protocol
        """Name no node: no plugin's reasons are read here."""
        return ()

    def node_count(self) -> int:
        """Count the nodes."""
        return len(self.allocatable)

    def has_node(self, node: str) -> bool:
        """Return whether the node is there still."""
        return node in self.allocatable and node not in self.gone

    def code(self, node: str) -> Code:
        """Return the filters' refusal."""
        if node not in self.allocatable:
            return Code.UNSCHEDULABLE_AND_UNRESOLVABLE
        return self.codes.get(node, Code.UNSCHEDULABLE)

    def potential_nodes(self) -> Sequence[str]:
        """Return the nodes refused with UNSCHEDULABLE."""
        return [node for node in self.allocatable if self.code(node) is Code.UNSCHEDULABLE]

    def batch_dry_run(self, now_ns: int) -> None:
        """Leave the nodes to be tried one by one."""
        del now_ns

    def pods_on(self, node: str) -> Sequence[Pod]:
        """Return the node's pods."""
        return [pod for pod in self.assigned if pod.node_name == node]

    def nominated_on(self, node: str) -> Sequence[Pod]:
        """Return the pods nominated to the node."""
        return [pod for pod in self.nominated if pod.nominated_node_name == node]

    def budgets(self) -> Sequence[PodDisruptionBudget]:
        """Return the budgets."""
        return self.all_budgets

    def prepared(self, plugin: str) -> bool:  # noqa: ARG002 - PreFilter refuses nobody here
        """Tell that every plugin's PreFilter ran."""
        return True

    def dry_run(self, node: str) -> ResourceDryRun:
        """Begin a dry run."""
        return ResourceDryRun(
            pod=self.pod,
            allocatable=self.allocatable[node],
            held=list(self.pods_on(node)),
            counted=[
                pod
                for pod in self.nominated_on(node)
                if pod.priority >= self.pod.priority and pod.uid != self.pod.uid
            ],
        )


@dataclass(slots=True, kw_only=True)
class ResourceDryRun:
    """A node that refuses a pod for lack of resources only."""

    pod: Pod
    allocatable: Mapping[str, int]
    held: list[Pod]
    counted: Sequence[Pod] = ()

    def pods(self) -> Sequence[Pod]:
        """Return the node's pods."""
        return tuple(self.held)

    def remove(self, pod: Pod) -> None:
        """Take a pod off the node."""
        self.held = [other for other in self.held if other.uid != pod.uid]

    def add(self, pod: Pod) -> None:
        """Put a pod on the node."""
        self.held.append(pod)

    def refusal(self) -> Status | None:
        """Name every shortage, in the order of NodeResourcesFit."""
        reasons = shortages(self.allocatable, [*self.held, *self.counted], self.pod)
        if not reasons:
            return None
        return Status(code=Code.UNSCHEDULABLE, plugin="NodeResourcesFit", reasons=tuple(reasons))


def shortages(allocatable: Mapping[str, int], held: Sequence[Pod], pod: Pod) -> list[str]:
    """Say what `pod` lacks on a node that holds `held`; a request of zero is never short."""
    reasons = ["Too many pods"] if len(held) + 1 > allocatable.get("pods", 110) else []
    for name, wanted in pod_requests(pod.spec).items():
        used = sum(pod_requests(other.spec).get(name, 0) for other in held)
        if wanted and wanted > allocatable.get(name, 0) - used:
            reasons.append(f"Insufficient {name}")
    return reasons
