"""What the preemptor asks about the scheduling cycle that failed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from services.kube.budget import PodDisruptionBudget
from services.kube.pod import Pod
from services.scheduler.core.preemption.survey import Survey
from services.scheduler.core.preemption.victims import DryRun
from services.scheduler.core.status import Code


class FailedCycle(Protocol):
    """One pod's failed cycle: why each node refused it, and the snapshot that it was tried on.

    Nodes go by their names. Sequences of nodes follow the snapshot's order, which breaks ties
    in the rules of v1.16; budgets follow the order in which they are listed.
    """

    def prepared(self, plugin: str) -> bool:
        """Tell whether a plugin's PreFilter ran, or an earlier one had refused the pod before."""

    def node_count(self) -> int:
        """Return how many nodes the snapshot has."""

    def has_node(self, node: str) -> bool:
        """Tell whether the snapshot has the node."""

    def code(self, node: str) -> Code:
        """Return how the filters refused the pod on `node`.

        UNSCHEDULABLE_AND_UNRESOLVABLE for a node that the snapshot does not have.
        Source: kubernetes v1.34 pkg/scheduler/framework/types.go, NodeToStatus.Get.
        """

    def potential_nodes(self) -> Sequence[str]:
        """Return the nodes where removing pods may help: those refused with UNSCHEDULABLE."""

    def survey(self, now_ns: int) -> Survey | None:
        """Dry-run all potential nodes at once, None where they have to be tried one by one.

        `now_ns` stands for a start that is missing.
        """

    def pods_on(self, node: str) -> Sequence[Pod]:
        """Return the node's assigned and assumed pods; none for an unknown node."""

    def nominated_on(self, node: str) -> Sequence[Pod]:
        """Return the pods nominated to the node, in the order of their nomination."""

    def budgets(self) -> Sequence[PodDisruptionBudget]:
        """Return every disruption budget, with its status as last received."""

    def dry_run(self, node: str) -> DryRun:
        """Begin a dry run of the pod on `node`."""
