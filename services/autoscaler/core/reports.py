"""The report of one autoscaler scan: its decisions, and why other actions were not taken.

Source: kubernetes/autoscaler 1.36 processors/status/scale_up_status_processor.go; core/scaledown/
status/status.go; the names of results are upstream's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from services.autoscaler.core.scale_down.actuation import Started
from services.autoscaler.core.scale_down.deletions import DeleteResult
from services.autoscaler.core.scale_down.reasons import Unremovable
from services.autoscaler.core.scale_down.utilization import Utilization


class ScaleUpResult(Enum):
    """The result of a scale-up."""

    SUCCESSFUL = "Successful"
    ERROR = "Error"
    NO_OPTIONS_AVAILABLE = "NoOptionsAvailable"
    NOT_NEEDED = "NotNeeded"
    NOT_TRIED = "NotTried"
    IN_COOLDOWN = "InCooldown"
    LIMITED_BY_MAX_NODES_TOTAL = "LimitedByMaxNodesTotal"


class ScaleDownResult(Enum):
    """The result of a scale-down."""

    ERROR = "Error"
    NO_NODE_DELETED = "NoNodeDeleted"
    NODE_DELETE_STARTED = "NodeDeleteStarted"
    NOT_TRIED = "NotTried"
    IN_COOLDOWN = "InCooldown"
    NO_CANDIDATES = "NoCandidates"


class Stopped(Enum):
    """The reason for which a scan ended early."""

    UNHEALTHY = "unhealthy"
    FIXED_GROUP_SIZE = "fixed_group_size"
    NOT_ACTIONABLE = "not_actionable"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupIncrease:
    """A group whose target size was increased."""

    group: str
    from_size: int
    to_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RemainingPod:
    """A pod that no group was scaled up for.

    `rejected` are the groups on whose nodes it does not fit, `skipped` the reasons of groups that
    were not asked.
    """

    pod: str
    rejected: tuple[str, ...] = ()
    skipped: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleUpReport:
    """A scale-up: its result, the pods (by key) that triggered it, and those left for the next one.

    `failed_groups` are those whose increase was refused.
    """

    result: ScaleUpResult
    groups: tuple[GroupIncrease, ...] = ()
    triggered: tuple[str, ...] = ()
    awaiting: tuple[str, ...] = ()
    remain: tuple[RemainingPod, ...] = ()
    failed_groups: tuple[str, ...] = ()


@dataclass(slots=True, kw_only=True)
class ScanReport:
    """All that a scan decided; `scale_up` None: the scan only raised groups to their minimum.

    `pods_to_help` are keys. `unneeded`, `unremovable` and `utilizations` are empty where the scan
    ended before its scale-down. `upcoming` are numbers by group, `backoff` error codes by group.
    """

    now_ns: int
    error: str = ""
    stopped: Stopped | None = None
    pods_to_help: tuple[str, ...] = ()
    scale_up: ScaleUpReport | None = None
    min_size_scale_up: ScaleUpReport | None = None
    scale_down: ScaleDownResult = ScaleDownResult.NOT_TRIED
    deleting: tuple[Started, ...] = ()
    delete_results: Mapping[str, DeleteResult] = field(default_factory=dict)
    unneeded: Mapping[str, int] = field(default_factory=dict)
    unremovable: Mapping[str, Unremovable] = field(default_factory=dict)
    utilizations: Mapping[str, Utilization] = field(default_factory=dict)
    upcoming: Mapping[str, int] = field(default_factory=dict)
    backoff: Mapping[str, str] = field(default_factory=dict)
    unhealthy_groups: tuple[str, ...] = ()
