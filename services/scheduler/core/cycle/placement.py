"""Checks another scheduler's decision against a profile's filters and the preemptor's rules.

A placement is judged as an attempt judges a node: PreFilter, then Filter on that node alone, with
the pods that are nominated to it counted. A preemption is judged by what the preemptor would not
do: it deletes no pod of the same or a higher priority, none for a pod that never preempts, and none
in vain, so that the pod fits once the victims have gone, or at least together with the pods that
terminate there anyway. Nothing is changed, and which of several right nodes is better does not
matter.

Source: kubernetes v1.34 pkg/scheduler/schedule_one.go, findNodesThatFitPod, evaluateNominatedNode;
framework/runtime/framework.go, RunFilterPluginsWithNominatedPods;
plugins/defaultpreemption/default_preemption.go, PodEligibleToPreemptOthers, SelectVictimsOnNode.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from services.framework.runtime.framework import Framework
from services.framework.runtime.merged_columns import EXCLUDED
from services.framework.runtime.node_dry_run import NodeDryRun
from services.framework.runtime.verdicts import ClassVerdicts
from services.framework.status import Code, Status
from services.kube.pod import Pod, PreemptionPolicy

PREEMPTION = "DefaultPreemption"


def refusal(framework: Framework, pod: Pod, row: int) -> Status | None:
    """Return why the filters refuse the node of a live row to a pending pod, None if they do not.

    Raises PluginFailed.
    """
    verdicts = framework.verdicts.synced(pod)
    pre_filter = verdicts.filters.pre_filter
    if pre_filter.refusal is not None:
        return pre_filter.refusal
    number = int(verdicts.refuser[row])
    if number == 0 or verdicts.try_nominated_node() == row:
        return None
    overridden = verdicts.overrides().get(row)
    if overridden is not None:
        return overridden
    return pre_filter.excluded if number == EXCLUDED else verdicts.filters.status(row)


def preemption_faults(
    framework: Framework, pod: Pod, row: int, victims: Sequence[Pod]
) -> Iterator[Status]:
    """Yield the faults of preempting `victims`, which are on the node of a live row, for a pod.

    Raises PluginFailed.
    """
    if pod.spec.preemption_policy is PreemptionPolicy.NEVER:
        yield _fault("the pod's preemptionPolicy is Never")
    for victim in victims:
        if victim.priority >= pod.priority:
            yield _fault(
                f"victim {victim.key} has priority {victim.priority}, which is not below "
                f"{pod.priority}"
            )
    verdicts = framework.verdicts.synced(pod)
    if verdicts.filters.pre_filter.refusal is not None:
        yield verdicts.filters.pre_filter.refusal
        return
    refused = _refused_without(framework, verdicts, pod, row, victims)
    if refused is not None:
        yield refused


def _refused_without(
    framework: Framework, verdicts: ClassVerdicts, pod: Pod, row: int, victims: Sequence[Pod]
) -> Status | None:
    """Return why the pod does not fit even after `victims` and all terminating pods are removed."""
    dry_run = NodeDryRun(pod, row, verdicts.filters.dry_run_filters, framework.snapshot)
    for victim in victims:
        dry_run.remove(victim)
    refused = dry_run.refusal()
    if refused is None:
        return None
    gone = {victim.uid for victim in victims}
    terminating = [
        other
        for other in framework.snapshot.pods_on(row)
        if other.is_terminating and other.uid not in gone
    ]
    for other in terminating:
        dry_run.remove(other)
    return dry_run.refusal() if terminating else refused


def _fault(reason: str) -> Status:
    return Status(code=Code.UNSCHEDULABLE, plugin=PREEMPTION, reasons=(reason,))
