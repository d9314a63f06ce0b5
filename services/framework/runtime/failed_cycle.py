"""What PostFilter reads of a cycle in which no node fits: the class's verdicts and their diagnosis.

`FitError` is the framework's side of `preemption.outcome.FailedCycle`. Dry runs of all potential
nodes at once (`BatchDryRun`) and of single ones (`NodeDryRun`) begin from the kept verdicts.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from services.framework.plugin import Preemptor
from services.framework.preemption.batch_dry_run import BatchDryRun, BatchDryRunResult
from services.framework.preemption.candidates import DryRun
from services.framework.runtime.diagnosis import Diagnosis
from services.framework.runtime.node_dry_run import NodeDryRun
from services.framework.runtime.verdicts import ClassVerdicts
from services.framework.status import Code
from services.kube.pod import Pod, PreemptionPolicy
from services.kube.workloads import PodDisruptionBudget


@dataclass(slots=True, kw_only=True, eq=False)
class FitError:
    """No node fits a pod: its failed cycle, as PostFilter reads it (`outcome.FailedCycle`).

    `verdicts` are those about the pod's class, and `diagnosis` is why no node is left, in which
    extenders may have a part. The snapshot must not change meanwhile. `batch` dry-runs all nodes at
    once, where it can; without it, they are tried one by one.
    """

    pod: Pod
    verdicts: ClassVerdicts
    diagnosis: Diagnosis
    batch: BatchDryRun | None = None
    _batch_result: BatchDryRunResult | None = None

    def prepared(self, plugin: str) -> bool:
        """Return whether a plugin's PreFilter ran, or an earlier one had refused the pod before."""
        return plugin in self.verdicts.filters.pre_filter_ran

    def refused_by(self, plugin: str, reason: str) -> Sequence[str]:
        """Return the nodes that a plugin refused for that reason alone."""
        groups = [
            number
            for number, group in enumerate(self.diagnosis.groups)
            if group.status.plugin == plugin and group.status.reasons == (reason,)
        ]
        if not groups or self.diagnosis.pre_filter is not None:
            return ()
        listed = self.verdicts.snapshot.rows_in_order()
        rows = listed[np.isin(self.diagnosis.group_of[listed], groups)]
        return [self.verdicts.snapshot.name(row) for row in rows.tolist()]

    def node_count(self) -> int:
        """Return how many nodes the snapshot has."""
        return self.verdicts.snapshot.node_count

    def has_node(self, node: str) -> bool:
        """Return whether the snapshot has the node."""
        return self.verdicts.snapshot.row(node) is not None

    def code(self, node: str) -> Code:
        """Return the code with which the filters refused the pod on `node`."""
        row = self.verdicts.snapshot.row(node)
        if row is None:
            return Code.UNSCHEDULABLE_AND_UNRESOLVABLE
        return self.diagnosis.status(row).code

    def potential_nodes(self) -> Sequence[str]:
        """Return the nodes refused with UNSCHEDULABLE, in the snapshot's order."""
        listed = self.verdicts.snapshot.rows_in_order()
        rows = listed[self.diagnosis.refused_with(Code.UNSCHEDULABLE, listed)]
        return [self.verdicts.snapshot.name(row) for row in rows.tolist()]

    def batch_dry_run(self, now_ns: int) -> BatchDryRunResult | None:
        """Dry-run all potential nodes at once, None where they have to be tried one by one."""
        if self.batch is not None and self.diagnosis.pre_filter is None:
            resolvable = partial(self.diagnosis.refused_with, Code.UNSCHEDULABLE)
            self._batch_result = self.batch.run(self.pod, self.verdicts, resolvable, now_ns)
            self.batch = None  # once a cycle: its result stays true
        return self._batch_result

    def key_after_dry_run(self, preemptor: Preemptor | None, now_ns: int) -> Hashable:
        """Run the batch dry run, and return a key on which alone the refusal's message depends.

        Preemption begins here: PostFilter uses the result later. None where there is no such key.
        The message is the same while equally many nodes are refused for the same reasons, and
        preemption fails on equally many for the same. A pod for which room can be made has none.
        """
        key = self.diagnosis.key
        if key is None:
            return None
        if preemptor is None or self.pod.spec.preemption_policy is PreemptionPolicy.NEVER:
            return (key, ())
        batch = self.batch_dry_run(now_ns) if preemptor.narrow is None else None
        return None if batch is None or len(batch.rows) else (key, batch.key)

    def pods_on(self, node: str) -> Sequence[Pod]:
        """Return the node's assigned and assumed pods; none for an unknown node."""
        row = self.verdicts.snapshot.row(node)
        return () if row is None else self.verdicts.snapshot.pods_on(row)

    def nominated_on(self, node: str) -> Sequence[Pod]:
        """Return the pods nominated to the node, in the order of their nomination."""
        return self.verdicts.snapshot.nominations.on(node)

    def budgets(self) -> Sequence[PodDisruptionBudget]:
        """Return every disruption budget, with its status as last received."""
        return tuple(self.verdicts.snapshot.budgets.values())

    def dry_run(self, node: str) -> DryRun:
        """Begin a dry run of the pod on `node`."""
        row = self.verdicts.snapshot.row(node)
        assert row is not None, f"{node} is not in the snapshot"
        if self.diagnosis.pre_filter is not None:  # so that no filter has run
            self.verdicts.filters.sync()
        return NodeDryRun(
            self.pod, row, self.verdicts.filters.dry_run_filters, self.verdicts.snapshot
        )
