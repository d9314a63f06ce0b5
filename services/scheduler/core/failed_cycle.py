"""One failed cycle, as the preemptor looks at it.

Implements services.scheduler.core.preemption.view.FailedCycle over a diagnosis and the snapshot
that the pod was tried on.
"""

from __future__ import annotations

from collections.abc import Sequence

from services.kube.budget import PodDisruptionBudget
from services.kube.pod import Pod
from services.scheduler.core.columns import Int64s
from services.scheduler.core.diagnosis import Diagnosis
from services.scheduler.core.framework import Framework
from services.scheduler.core.node_dry_run import NodeDryRun
from services.scheduler.core.outlook import Outlook
from services.scheduler.core.preemption.survey import Survey
from services.scheduler.core.preemption.victims import DryRun
from services.scheduler.core.status import Code
from services.scheduler.core.surveyor import Surveyor


class SnapshotFailedCycle:
    """The cycle of one pod under one framework, whose snapshot must not change meanwhile.

    Without a `surveyor`, nodes are tried one by one. `outlook` is the pod's, if it is known.
    """

    def __init__(
        self,
        pod: Pod,
        framework: Framework,
        diagnosis: Diagnosis,
        surveyor: Surveyor | None = None,
        outlook: Outlook | None = None,
    ) -> None:
        self._snapshot = framework.snapshot
        self._pod = pod
        self._diagnosis = diagnosis
        self._surveyor = surveyor
        self._outlook = framework.outlook(pod) if outlook is None else outlook
        self._survey: Survey | None = None
        self._surveyed = False

    def prepared(self, plugin: str) -> bool:
        """Tell whether a plugin's PreFilter ran, or an earlier one had refused the pod before."""
        return plugin in self._outlook.shape.pre_filter_ran

    def node_count(self) -> int:
        """Return how many nodes the snapshot has."""
        return self._snapshot.node_count

    def has_node(self, node: str) -> bool:
        """Tell whether the snapshot has the node."""
        return self._snapshot.row(node) is not None

    def code(self, node: str) -> Code:
        """Return how the filters refused the pod on `node`."""
        row = self._snapshot.row(node)
        if row is None:
            return Code.UNSCHEDULABLE_AND_UNRESOLVABLE
        return self._diagnosis.status(row).code

    def potential_nodes(self) -> Sequence[str]:
        """Return the nodes refused with UNSCHEDULABLE, in the snapshot's order."""
        return [self._snapshot.name(row) for row in self._potential_rows().tolist()]

    def survey(self, now_ns: int) -> Survey | None:
        """Dry-run all potential nodes at once, None where they have to be tried one by one."""
        if self._surveyor is not None and not self._surveyed:
            self._surveyed = True
            self._survey = self._surveyor.survey(self._pod, self._outlook, self._diagnosis, now_ns)
        return self._survey

    def pods_on(self, node: str) -> Sequence[Pod]:
        """Return the node's assigned and assumed pods; none for an unknown node."""
        row = self._snapshot.row(node)
        return () if row is None else self._snapshot.pods_on(row)

    def nominated_on(self, node: str) -> Sequence[Pod]:
        """Return the pods nominated to the node, in the order of their nomination."""
        return self._snapshot.nominations.on(node)

    def budgets(self) -> Sequence[PodDisruptionBudget]:
        """Return every disruption budget, with its status as last received."""
        return tuple(self._snapshot.budgets.values())

    def dry_run(self, node: str) -> DryRun:
        """Begin a dry run of the pod on `node`."""
        row = self._snapshot.row(node)
        assert row is not None, f"{node} is not in the snapshot"
        if self._diagnosis.pre_filter is not None:  # so that no filter has run
            self._outlook.shape.sync()
        return NodeDryRun(self._pod, row, self._outlook.shape, self._snapshot)

    def _potential_rows(self) -> Int64s:
        listed = self._snapshot.rows_in_order()
        return listed[self._diagnosis.refused_with(Code.UNSCHEDULABLE, listed)]
