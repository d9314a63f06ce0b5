"""A failed cycle as the preemptor reads it.

It implements `preemption.outcome.FailedCycle` over a diagnosis and the snapshot that the pod was
tried on. BatchDryRun tries all its nodes at once, where it can.
"""

from __future__ import annotations

from collections.abc import Sequence

from services.framework.columns.columns import Int64s
from services.framework.preemption.batch_result import BatchDryRunResult
from services.framework.preemption.victims import DryRun
from services.framework.runtime.diagnosis import Diagnosis
from services.framework.runtime.framework import Framework
from services.framework.runtime.verdicts import CachedAttempt, NodeDryRun
from services.framework.status import Code
from services.kube.pod import Pod
from services.kube.workloads import PodDisruptionBudget
from services.scheduler.core.cycle.batch_dry_run import BatchDryRun


class SnapshotFailedCycle:
    """The cycle of one pod under one framework, whose snapshot must not change meanwhile.

    Without a `batch_dry_run`, nodes are tried one by one. `cached` is the pod's cached attempt,
    looked up where it is None.
    """

    def __init__(
        self,
        pod: Pod,
        framework: Framework,
        diagnosis: Diagnosis,
        batch_dry_run: BatchDryRun | None = None,
        cached: CachedAttempt | None = None,
    ) -> None:
        self._snapshot = framework.snapshot
        self._pod = pod
        self._diagnosis = diagnosis
        self._batch_dry_run = batch_dry_run
        self._cached = framework.cached_attempt(pod) if cached is None else cached
        self._batch: BatchDryRunResult | None = None
        self._batch_done = False

    def prepared(self, plugin: str) -> bool:
        """Return whether a plugin's PreFilter ran, or an earlier one had refused the pod before."""
        return plugin in self._cached.equivalence.pre_filter_ran

    def node_count(self) -> int:
        """Return how many nodes the snapshot has."""
        return self._snapshot.node_count

    def has_node(self, node: str) -> bool:
        """Return whether the snapshot has the node."""
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

    def batch_dry_run(self, now_ns: int) -> BatchDryRunResult | None:
        """Dry-run all potential nodes at once, None where they have to be tried one by one."""
        if self._batch_dry_run is not None and not self._batch_done:
            self._batch_done = True
            self._batch = self._batch_dry_run.run(self._pod, self._cached, self._diagnosis, now_ns)
        return self._batch

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
            self._cached.equivalence.sync()
        return NodeDryRun(self._pod, row, self._cached.equivalence, self._snapshot)

    def _potential_rows(self) -> Int64s:
        listed = self._snapshot.rows_in_order()
        return listed[self._diagnosis.refused_with(Code.UNSCHEDULABLE, listed)]
