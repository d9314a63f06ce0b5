"""What a step decides and returns: evictions, node events, conditions, the next step's time.

Source: kubernetes v1.32 pkg/kubelet/eviction/eviction_manager.go, evictPod and synchronize.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from services.eviction.core.observations import NO_COLLECTION, GarbageCollection
from services.eviction.core.ranking import RankedPod
from services.eviction.core.signals import ConditionType, Signal
from services.eviction.core.thresholds import Threshold
from services.kube.pod import Condition

MONITORING_INTERVAL_NS = 10 * 1_000_000_000
CLEANUP_TIMEOUT_NS = 30 * 1_000_000_000
CLEANUP_POLL_NS = 1_000_000_000
EVICTED_REASON = "Evicted"
EVICTED_PHASE = "Failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdEvidence:
    """The figures behind an eviction by a threshold.

    `threshold` is its text; `available` and `capacity` (bytes, inodes or pids) were observed of its
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
    storage that the pod exceeds, for which `evidence` is None. `annotations` are those of the pod's
    Evicted event; they are empty for a pod without statistics and for a limit.
    """

    uid: str
    namespace: str
    name: str
    cause: str
    grace_period_s: int
    message: str
    annotations: Mapping[str, str] = field(default_factory=dict)
    evidence: ThresholdEvidence | None = None

    @property
    def by_threshold(self) -> bool:
        """Whether a threshold was met, rather than a limit exceeded."""
        return self.evidence is not None

    @property
    def condition(self) -> Condition | None:
        """The DisruptionTarget condition of an eviction by a threshold, None for a limit."""
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
class PodAdmitResult:
    """Whether the kubelet admits a pod; `reason` and `message` are empty where it does.

    Source: kubernetes v1.32 pkg/kubelet/lifecycle/interfaces.go, PodAdmitResult.
    """

    admit: bool
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NeedReclaim:
    """The step needs a garbage collection: dead containers first, then unused images.

    `Manager.resume` continues it with the node's statistics after the collection, failed or not.
    """

    signal: Signal
    containers: bool
    images: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """What a step found and decided.

    `error` is upstream's text where the step failed. `conditions_held` are the conditions that
    hold, and `conditions` the node's three pressure conditions with their texts, without times.
    `thresholds_met` are those whose grace period has elapsed. `evictions` holds one pod, or all
    pods above a limit on local storage; a kill that fails counts as done. `ranking` is the whole
    order of eviction, where a threshold forced one. `collected` is the step's garbage collection.

    The next step is due at `next_step_ns`; after an eviction that is the latest time, and the step
    is due as soon as the evicted pods are cleaned up (polled every CLEANUP_POLL_NS). `changed` is
    false where the step left everything but observations' times as it was; `quiet`: the same
    observations would leave it so at any later time, too. `signal` is the one whose threshold was
    acted upon. `stats_ages_ns` is the age of the statistics that forced an eviction, by signal.
    `notify_at` are the amounts at which the kernel notifies (see thresholds.Notifications); empty
    without kernelMemcgNotification.
    """

    now_ns: int
    error: str = ""
    conditions_held: tuple[ConditionType, ...] = ()
    conditions: tuple[Condition, ...] = ()
    condition_last_observed_ns: Mapping[ConditionType, int]
    first_observed_ns: Mapping[Threshold, int]
    thresholds_met: tuple[Threshold, ...] = ()
    evictions: tuple[Eviction, ...] = ()
    ranking: tuple[RankedPod, ...] = ()
    events: tuple[NodeEvent, ...] = ()
    collected: GarbageCollection = NO_COLLECTION
    next_step_ns: int
    changed: bool
    quiet: bool
    signal: Signal | None = None
    stats_ages_ns: tuple[tuple[Signal, int], ...] = ()
    notify_at: tuple[tuple[Signal, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDecision:
    """What a step decides beside its state; kept during a garbage collection."""

    evictions: tuple[Eviction, ...] = ()
    ranking: tuple[RankedPod, ...] = ()
    events: tuple[NodeEvent, ...] = ()
    collected: GarbageCollection = NO_COLLECTION
    signal: Signal | None = None
    stats_ages_ns: tuple[tuple[Signal, int], ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether the step has no effect."""
        return not (self.evictions or self.events or self.collected)
