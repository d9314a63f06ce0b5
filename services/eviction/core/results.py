"""What a step answers: its result, or the garbage collection that it needs first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from services.eviction.core.decisions import Eviction, NodeEvent
from services.eviction.core.layout import NO_COLLECTION, Collection
from services.eviction.core.ranking import RankedPod
from services.eviction.core.signals import ConditionType, Signal
from services.eviction.core.thresholds import Threshold
from services.kube.pod import Condition

MONITORING_INTERVAL_NS = 10 * 1_000_000_000
CLEANUP_TIMEOUT_NS = 30 * 1_000_000_000
CLEANUP_POLL_NS = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class NeedReclaim:
    """The step asks the node to collect garbage: dead containers first, then unused images.

    Continue it with `Manager.resume`. Whether the collection failed does not matter; what the
    node then observes does.
    """

    signal: Signal
    containers: bool
    images: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """What a step found and decided.

    `error` is upstream's text where the step could not be done. `under` are the conditions that
    hold and `conditions` the node's three pressure conditions with their texts, without times.
    `thresholds_met` are those whose grace has elapsed. `evictions` holds one pod, or all pods
    above a limit on local storage; a kill that fails counts as done. `ranking` is the whole order
    in which pods would go, where a threshold forced an eviction. `collected` is what was
    collected in this step.

    The next step is due at `next_step_ns`; after an eviction that is the latest time, and the
    step is due as soon as the evicted pods are cleaned up (polled every CLEANUP_POLL_NS).
    `changed` is false where the step left everything but observations' times as it was; `quiet`
    says that the same observations would leave it so at any later time, too. `signal` is the one
    whose threshold was acted upon. `stats_ages_ns` is how old the statistics were that forced an
    eviction, by signal. `notify_at` are the amounts at which the kernel tells (see
    notifications.Notifications); none without kernelMemcgNotification.
    """

    now_ns: int
    error: str = ""
    under: tuple[ConditionType, ...] = ()
    conditions: tuple[Condition, ...] = ()
    condition_last_observed_ns: Mapping[ConditionType, int]
    first_observed_ns: Mapping[Threshold, int]
    thresholds_met: tuple[Threshold, ...] = ()
    evictions: tuple[Eviction, ...] = ()
    ranking: tuple[RankedPod, ...] = ()
    events: tuple[NodeEvent, ...] = ()
    collected: Collection = NO_COLLECTION
    next_step_ns: int
    changed: bool
    quiet: bool
    signal: Signal | None = None
    stats_ages_ns: tuple[tuple[Signal, int], ...] = ()
    notify_at: tuple[tuple[Signal, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a step decides beyond its state; kept while a collection is under way."""

    evictions: tuple[Eviction, ...] = ()
    ranking: tuple[RankedPod, ...] = ()
    events: tuple[NodeEvent, ...] = ()
    collected: Collection = NO_COLLECTION
    signal: Signal | None = None
    stats_ages_ns: tuple[tuple[Signal, int], ...] = ()

    @property
    def is_empty(self) -> bool:
        """Tell whether nothing is to be done."""
        return not (self.evictions or self.events or self.collected)
