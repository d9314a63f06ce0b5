"""The result of a step of the eviction manager: evictions, conditions, statistics.

Messages have the kubelet's wording; every sentence in a message ends with a space.

Source: kubernetes v1.32 pkg/kubelet/eviction/eviction_manager.go, evictPod and synchronize;
helpers.go, evictionMessage.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from services.eviction.core.observations import (
    NO_COLLECTION,
    ContainerUsage,
    FsUsage,
    GarbageCollection,
    Observation,
    PodUsage,
    available_quantity,
)
from services.eviction.core.pod import EvictionContainer, EvictionPod
from services.eviction.core.ranking import RankedPod
from services.eviction.core.signals import ConditionType, Signal, StarvedResource
from services.eviction.core.thresholds import Threshold
from services.kube.pod import Condition
from services.kube.quantity import NANO, Format, Quantity
from services.kube.time import SECOND_NS

MONITORING_INTERVAL_NS = 10 * SECOND_NS
CLEANUP_TIMEOUT_NS = 30 * SECOND_NS
CLEANUP_POLL_NS = SECOND_NS
EVICTED_REASON = "Evicted"
EVICTED_PHASE = "Failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdEvidence:
    """The figures behind an eviction by a threshold.

    threshold: the text of the threshold. available, capacity: the observation of its signal (bytes,
    inodes or process IDs). rank: the pod's place, from 1, among all `ranked` pods, including
    critical pods.
    """

    threshold: str
    available: int
    capacity: int
    rank: int
    ranked: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Eviction:
    """A pod to be killed; its status becomes EVICTED_PHASE, EVICTED_REASON and `message`.

    `grace_period_s` overrides the pod's grace period. `cause` is the signal's name, or the limit on
    local storage that the pod exceeds; for a limit, `evidence` is None. `annotations` are for the
    pod's Evicted event; they are empty for a limit and for a pod without statistics.
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
        """Whether a threshold caused the eviction, not a limit on local storage."""
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
    """The result of admitting a pod; `reason` and `message` are empty if it is admitted.

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
    """The result of one step of the eviction manager (upstream's synchronize).

    error: upstream's text if the step failed. conditions_held: the conditions that hold.
    conditions: the node's three pressure conditions with their texts, without times.
    thresholds_met: thresholds whose grace period has elapsed. evictions: one pod, or all pods above
    a limit on local storage; a kill that fails counts as done. ranking: the whole order of
    eviction, if a threshold forced one. collected: the garbage collection of the step.

    next_step_ns: when the next step is due. After an eviction this is the latest time; the step is
    due as soon as the evicted pods are cleaned up (polled every CLEANUP_POLL_NS). changed: false if
    the step changed nothing except the times of observations. quiet: whether the same observations
    would change nothing at any later time either. signal: the signal whose threshold was acted
    upon. stats_ages_ns: the age of the statistics that forced an eviction, by signal. notify_at:
    the amounts at which the kernel notifies (see thresholds.Notifications); empty without
    kernelMemcgNotification.
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
    """The decisions of a step, without its state; stored during a garbage collection."""

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


_ZERO = Quantity(0)


def eviction_message(
    pod: EvictionPod,
    usage: PodUsage | None,
    threshold: Threshold,
    observed: Observation,
    *,
    name_init_containers: bool,
) -> tuple[str, dict[str, str]]:
    """Return the message and the event's annotations; {} for a pod without statistics."""
    resource = threshold.signal.resource
    quantity = threshold.value.amount(observed.capacity)
    available = available_quantity(threshold.signal, observed)
    message = (
        f"The node was low on resource: {resource.value}. "
        f"Threshold quantity: {quantity}, available: {available}. "
    )
    if usage is None:
        return message, {}
    nameable = (*pod.containers, *pod.init_containers) if name_init_containers else pod.containers
    offending = _offending(nameable, usage, resource)
    for container, used in offending:
        requested = container.requests.get(resource.value, _ZERO)
        message += (
            f"Container {container.name} was using {used}, request is {requested}, "
            f"has larger consumption of {resource.value}. "
        )
    return message, {
        "offending_containers": ",".join(container.name for container, _ in offending),
        "offending_containers_usage": ",".join(str(used) for _, used in offending),
        "starved_resource": resource.value,
    }


def _offending(
    containers: tuple[EvictionContainer, ...], usage: PodUsage, resource: StarvedResource
) -> list[tuple[EvictionContainer, Quantity]]:
    by_name: dict[str, EvictionContainer] = {}
    for container in containers:
        by_name.setdefault(container.name, container)
    offending = []
    for stats in usage.containers:
        spec, used = by_name.get(stats.name), _container_used(stats, resource)
        if spec is None or used is None:
            continue
        if used * NANO > spec.requests.get(resource.value, _ZERO).nano:
            offending.append((spec, Quantity.from_value(used, Format.BINARY_SI)))
    return offending


def _container_used(stats: ContainerUsage, resource: StarvedResource) -> int | None:
    match resource:
        case StarvedResource.MEMORY:
            return stats.memory_working_set_bytes
        case StarvedResource.EPHEMERAL_STORAGE:
            return _used_bytes(stats.rootfs, stats.logs)
        case _:
            return None


def _used_bytes(rootfs: FsUsage | None, logs: FsUsage | None) -> int | None:
    if rootfs is None or rootfs.used_bytes is None or logs is None or logs.used_bytes is None:
        return None
    return rootfs.used_bytes + logs.used_bytes
