"""The public import path for out-of-tree plugins: base classes, inputs and results.

Names that are not here may move between releases.
"""

from __future__ import annotations

from services.framework.columns.columns import CPU_COLUMN, MEMORY_COLUMN, Bools, Int64s
from services.framework.plugin import (
    BindPlugin,
    ClusterFilterPlugin,
    ClusterScorePlugin,
    FilterPlugin,
    Normalization,
    Normalized,
    PermitPlugin,
    Plain,
    Plugin,
    PodColumnsPlugin,
    PostBindPlugin,
    PostFilterPlugin,
    PreBindPlugin,
    PreEnqueuePlugin,
    PreFiltered,
    QueueSortPlugin,
    ReservePlugin,
    Scope,
    ScoreError,
    ScorePlugin,
    StatefulPlugin,
    Trial,
)
from services.framework.preemption.batch_dry_run import Bound, Bounds
from services.framework.preemption.candidates import (
    Candidate,
    DecidedBy,
    DryRun,
    NonCandidate,
    TieBreak,
)
from services.framework.preemption.outcome import CannotHelp, Cause, FailedCycle

# Plugins import it by this name.
from services.framework.preemption.outcome import Nomination as Nominate
from services.framework.snapshot.node_view import NodeView
from services.framework.snapshot.pod_classes import ClassWeights, PodClass
from services.framework.snapshot.snapshot import Snapshot
from services.framework.status import SKIPPED, SUCCESS, Code, Status
from services.framework.waiting_pods import Wait, WaitingPod, WaitingPods
from services.kube.node import Node
from services.kube.pod import Pod, PodSpec

__all__ = [
    "CPU_COLUMN",
    "MEMORY_COLUMN",
    "SKIPPED",
    "SUCCESS",
    "BindPlugin",
    "Bools",
    "Bound",
    "Bounds",
    "Candidate",
    "CannotHelp",
    "Cause",
    "ClassWeights",
    "ClusterFilterPlugin",
    "ClusterScorePlugin",
    "Code",
    "DecidedBy",
    "DryRun",
    "FailedCycle",
    "FilterPlugin",
    "Int64s",
    "Node",
    "NodeView",
    "Nominate",
    "NonCandidate",
    "Normalization",
    "Normalized",
    "PermitPlugin",
    "Plain",
    "Plugin",
    "Pod",
    "PodClass",
    "PodColumnsPlugin",
    "PodSpec",
    "PostBindPlugin",
    "PostFilterPlugin",
    "PreBindPlugin",
    "PreEnqueuePlugin",
    "PreFiltered",
    "QueueSortPlugin",
    "ReservePlugin",
    "Scope",
    "ScoreError",
    "ScorePlugin",
    "Snapshot",
    "StatefulPlugin",
    "Status",
    "TieBreak",
    "Trial",
    "Wait",
    "WaitingPod",
    "WaitingPods",
]
