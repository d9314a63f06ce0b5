"""A failed cycle as the preemptor reads it.

It implements `preemption.preemptor.FailedCycle` over a diagnosis and the snapshot that the pod was
tried on. BatchDryRun tries all its nodes at once, where it can.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import partial

from services.framework.preemption.batch_dry_run import BatchDryRun, BatchDryRunResult
from services.framework.preemption.candidates import DryRun
from services.framework.preemption.preemptor import Preemptor, no_extenders
from services.framework.runtime.diagnosis import Diagnosis
from services.framework.runtime.verdicts import CachedAttempt, NodeDryRun
from services.framework.snapshot.snapshot import Snapshot
from services.framework.status import Code
from services.kube.pod import Pod, PreemptionPolicy
from services.kube.workloads import PodDisruptionBudget


class SnapshotFailedCycle:
    """The cycle of one pod, whose snapshot must not change meanwhile; `cached` is synced for it.

    Without a `batch_dry_run`, nodes are tried one by one.
    """

    def __init__(
        self,
        pod: Pod,
        snapshot: Snapshot,
        cached: CachedAttempt,
        diagnosis: Diagnosis,
        batch_dry_run: BatchDryRun | None = None,
    ) -> None:
        self._snapshot = snapshot
        self._pod = pod
        self._cached = cached
        self._diagnosis = diagnosis
        self._batch_dry_run = batch_dry_run
        self._batch: BatchDryRunResult | None = None

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
        listed = self._snapshot.rows_in_order()
        rows = listed[self._diagnosis.refused_with(Code.UNSCHEDULABLE, listed)]
        return [self._snapshot.name(row) for row in rows.tolist()]

    def batch_dry_run(self, now_ns: int) -> BatchDryRunResult | None:
        """Dry-run all potential nodes at once, None where they have to be tried one by one."""
        if self._batch_dry_run is not None and self._diagnosis.pre_filter is None:
            resolvable = partial(self._diagnosis.refused_with, Code.UNSCHEDULABLE)
            self._batch = self._batch_dry_run.run(self._pod, self._cached, resolvable, now_ns)
            self._batch_dry_run = None  # once a cycle: what it has found stays true
        return self._batch

    def key(self, preemptor: Preemptor | None, now_ns: int) -> Hashable:
        """Return what the refusal's message follows from, None where that is more than this.

        The message is the same while equally many nodes are refused for the same reasons, and
        preemption fails on equally many for the same. A pod for which room can be made has none.
        """
        key = self._diagnosis.key
        if key is None:
            return None
        if preemptor is None or self._pod.spec.preemption_policy is PreemptionPolicy.NEVER:
            return (key, ())
        batch = self.batch_dry_run(now_ns) if preemptor.extenders is no_extenders else None
        return None if batch is None or len(batch.rows) else (key, batch.key)

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
