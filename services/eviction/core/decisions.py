"""What a step decides: evictions, events, and which pods are admitted.

Source: kubernetes v1.32 pkg/kubelet/eviction/eviction_manager.go, evictPod and synchronize.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from services.kube.pod import Condition

EVICTED_REASON = "Evicted"
EVICTED_PHASE = "Failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Grounds:
    """What an eviction by a threshold followed from.

    `threshold` is its text; `available` of `capacity` (bytes, inodes or pids) was observed of its
    signal; `rank`, from 1, is the pod's place among the `ranked` pods, critical ones included.
    """

    threshold: str
    available: int
    capacity: int
    rank: int
    ranked: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Eviction:
    """A pod to be killed; its status becomes EVICTED_PHASE, EVICTED_REASON and `message`.

    `grace_period_s` overrides the pod's own. `cause` is the signal's name, or the limit on local
    storage that the pod exceeds, which has no `grounds`. `annotations` go on the pod's Evicted
    event; they are empty for a pod without statistics and for a limit.
    """

    uid: str
    namespace: str
    name: str
    cause: str
    grace_period_s: int
    message: str
    annotations: Mapping[str, str] = field(default_factory=dict)
    grounds: Grounds | None = None

    @property
    def by_threshold(self) -> bool:
        """Tell whether a threshold was met, and not a limit exceeded."""
        return self.grounds is not None

    @property
    def condition(self) -> Condition | None:
        """Return the DisruptionTarget condition that a threshold's eviction sets, else None."""
        if not self.by_threshold:
            return None
        return Condition(
            type="DisruptionTarget",
            status="True",
            reason="TerminationByKubelet",
            message=self.message,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEvent:
    """An event on the node."""

    type: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """Whether the kubelet takes a pod; `reason` and `message` are empty where it does."""

    admit: bool
    reason: str = ""
    message: str = ""
