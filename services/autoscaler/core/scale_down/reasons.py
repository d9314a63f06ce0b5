"""The reasons why a node cannot be removed, by upstream's names.

Source: kubernetes/autoscaler 1.36 simulator/cluster.go, UnremovableReason.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from services.autoscaler.core.scale_down.drainability import Blocking


class Reason(Enum):
    """The reason for which a node cannot be removed, or not yet."""

    SCALE_DOWN_DISABLED_ANNOTATION = "ScaleDownDisabledAnnotation"
    SCALE_DOWN_UNREADY_DISABLED = "ScaleDownUnreadyDisabled"
    NOT_AUTOSCALED = "NotAutoscaled"
    NOT_UNNEEDED_LONG_ENOUGH = "NotUnneededLongEnough"
    NOT_UNREADY_LONG_ENOUGH = "NotUnreadyLongEnough"
    NODE_GROUP_MIN_SIZE_REACHED = "NodeGroupMinSizeReached"
    ATOMIC_SCALE_DOWN_FAILED = "AtomicScaleDownFailed"
    MINIMAL_RESOURCE_LIMIT_EXCEEDED = "MinimalResourceLimitExceeded"
    CURRENTLY_BEING_DELETED = "CurrentlyBeingDeleted"
    NOT_UNDERUTILIZED = "NotUnderutilized"
    RECENTLY_UNREMOVABLE = "RecentlyUnremovable"
    NO_PLACE_TO_MOVE_PODS = "NoPlaceToMovePods"
    BLOCKED_BY_POD = "BlockedByPod"
    UNEXPECTED_ERROR = "UnexpectedError"
    NO_NODE_INFO = "NoNodeInfo"
    BLOCKED_BY_ON_COMPLETION_POD = "BlockedByOnCompletionPod"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unremovable:
    """A node that cannot be removed; `pod` is the key of a pod that blocks it, `why` its reason."""

    reason: Reason
    pod: str = ""
    why: Blocking | None = None
