"""The scheduling cycle of a framework alone, for tests of plugins and their verdicts."""

from __future__ import annotations

from services.framework.runtime.framework import Framework
from services.framework.runtime.node_dry_run import NodeDryRun
from services.framework.runtime.verdicts import FilterVerdicts
from services.kube.pod import Pod
from services.scheduler.core.cycle.attempt import ProfileCycles
from services.scheduler.core.cycle.evaluate import NodeVerdicts, evaluate_pod
from services.scheduler.core.cycle.host_choice import KeyedChoice


def evaluate(framework: Framework, pod: Pod, *, nominated_first: bool = True) -> NodeVerdicts:
    """Return every verdict about `pod` on every node, without extenders."""
    cycles = ProfileCycles(framework, KeyedChoice(0), nominated_first=nominated_first)
    evaluation = evaluate_pod(cycles, pod, attempt_number=1, now_ns=0, preemptor=None, seed=0)
    return evaluation.verdicts


def filter_verdicts(framework: Framework, pod: Pod) -> FilterVerdicts:
    """Return the filters' verdicts about the pod's class, up to date."""
    return framework.verdicts.synced(pod).filters


def dry_run_on(framework: Framework, pod: Pod, row: int) -> NodeDryRun:
    """Return one node to be changed hypothetically for `pod`."""
    return NodeDryRun(pod, row, filter_verdicts(framework, pod).dry_run_filters, framework.snapshot)
