"""The queue's values: pending pods, QueuedPodInfo, and pods in flight.

The queue does not know resources or nodes. From a pod it reads identity, order, nomination and
gates; a digest that decides whether an update may have made the pod schedulable; the required
affinity terms that an assigned pod can match; and labels and spec for queueing hints.

All values are immutable: an operation that changes a QueuedPodInfo replaces it, so a snapshot can
share the values. Those that every cycle creates are named tuples, because a frozen dataclass takes
three times as long to create and to hash.

Source: kubernetes v1.34 pkg/scheduler/framework/types.go, QueuedPodInfo.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from services.kube.pod import PodSpec
from services.kube.selector import LabelSelector
from services.kube.value import value

PodKey = tuple[str, str]
"""A pod's namespace and name: the key of the sub-queues. Nominations are keyed by UID."""

_NO_LABELS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class AffinityTerm:
    """One required pod affinity term of a pending pod.

    `namespaces` has the pod's namespace if the term neither names nor selects namespaces.
    `namespace_selector` None selects no namespace.
    """

    namespaces: tuple[str, ...]
    selector: LabelSelector
    namespace_selector: LabelSelector | None = None

    def matches(self, assigned: AssignedPod) -> bool:
        """Return whether the term selects `assigned`."""
        if assigned.namespace not in self.namespaces:
            selector = self.namespace_selector
            if selector is None or not selector.matches(assigned.namespace_labels):
                return False
        return self.selector.matches(assigned.labels)


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignedPod:
    """A pod with a node, against which required affinity terms of pending pods are matched.

    `namespace_labels` are the labels of its namespace, for terms that select namespaces.
    """

    namespace: str
    labels: Mapping[str, str]
    namespace_labels: Mapping[str, str] = field(default_factory=lambda: _NO_LABELS)


@value(kw_only=True)
class PodRef:
    """A pod's identity."""

    uid: str
    namespace: str
    name: str

    @property
    def key(self) -> PodKey:
        """The namespace and the name."""
        return (self.namespace, self.name)


class QueuedPod(NamedTuple):
    """One version of a pending pod.

    nominated_node_name: status.nominatedNodeName, "" if none. sort_key: the order by the QueueSort
    plugin as bytes, ascending; empty means the default order, by descending priority. gates: the
    PreEnqueue plugins that reject the pod; it does not become active while there are any. labels,
    spec: read by queueing hints; `spec` is None before v1.34. digest: of all fields outside status,
    resourceVersion and generation; only an update compares digests, so others may have an empty
    one. spread_selector: selects the pods that a profile's default spread constraints counted when
    they refused this pod; None if they did not refuse it, or if the scheduler did not send the
    selector. claim_names: the names of ResourceClaims created from templates, by the names that the
    pod's spec has for them.
    """

    uid: str
    namespace: str
    name: str
    priority: int = 0
    nominated_node_name: str = ""
    sort_key: bytes = b""
    gates: tuple[str, ...] = ()
    digest: bytes = b""
    affinity_terms: tuple[AffinityTerm, ...] = ()
    labels: Mapping[str, str] = _NO_LABELS
    spec: PodSpec | None = None
    spread_selector: LabelSelector | None = None
    claim_names: tuple[tuple[str, str | None], ...] = ()

    @property
    def key(self) -> PodKey:
        """The namespace and the name."""
        return (self.namespace, self.name)

    @property
    def node_name(self) -> str:
        """The empty name: a pending pod has no node, but hints read this of any pod."""
        return ""

    @property
    def ref(self) -> PodRef:
        """The pod's identity."""
        return PodRef(uid=self.uid, namespace=self.namespace, name=self.name)

    def has_term_matching(self, assigned: AssignedPod) -> bool:
        """Return whether `assigned` matches any of the required affinity terms.

        Source: kubernetes v1.20 internal/queue/scheduling_queue.go,
        getUnschedulablePodsWithMatchingAffinityTerm.
        """
        return any(term.matches(assigned) for term in self.affinity_terms)


class Failure(NamedTuple):
    """The cause of a failed scheduling cycle: the plugins that refused the pod, or an error.

    `pending_plugins` are the plugins that returned Pending: the pod waits for an event of that
    plugin (Permit, PreBind). `error` is the text of a failure that is not a plugin's refusal.
    """

    plugins: tuple[str, ...] = ()
    pending_plugins: tuple[str, ...] = ()
    error: bool = False

    @property
    def is_unschedulable(self) -> bool:
        """Whether a plugin refused the pod, or returned Pending."""
        return bool(self.plugins or self.pending_plugins)

    def with_plugin(self, plugin: str) -> Failure:
        """Return the failure with one more refusing plugin; plugins are ordered by name."""
        if plugin in self.plugins:
            return self
        plugins = tuple(sorted((*self.plugins, plugin)))
        return Failure(plugins=plugins, pending_plugins=self.pending_plugins, error=self.error)


class Requeue(NamedTuple):
    """What moved a pod to activeQ or a backoffQ after its last attempt had failed.

    event: the event under which the pod was counted then (results.py). at_ns: when. active_ns: when
    the pod entered activeQ, None while it backs off.
    """

    event: str
    at_ns: int
    active_ns: int | None = None


class QueuedPodInfo(NamedTuple):
    """A pod in one of the sub-queues.

    timestamp_ns: when the pod was added or last failed. initial_attempt_ns: when it was first added
    (v1.34: when it first entered activeQ, None before that). attempts: the number of its pops.
    sequence: breaks ties of the timestamp, in the order of arrival. failure: of the last cycle,
    None before the first. In v1.34, the backoff depends on unschedulable_count, the number of
    cycles in which plugins refused the pod, or on consecutive_errors, the number of consecutive
    errors. gating_plugin: the PreEnqueue plugin that rejected the pod last, "" if none. requeue:
    what moved the pod since its last cycle failed, None before its first and while it is
    unschedulable.
    Source: kubernetes v1.34 pkg/scheduler/framework/types.go, QueuedPodInfo.
    """

    pod: QueuedPod
    timestamp_ns: int
    initial_attempt_ns: int | None
    attempts: int
    sequence: int
    failure: Failure | None = None
    unschedulable_count: int = 0
    consecutive_errors: int = 0
    gating_plugin: str = ""
    requeue: Requeue | None = None

    @property
    def key(self) -> PodKey:
        """The pod's namespace and name."""
        pod = self.pod
        return (pod.namespace, pod.name)

    @property
    def is_unschedulable(self) -> bool:
        """Whether plugins refused the pod in its last cycle, or gate it before its first."""
        return self.failure is not None and self.failure.is_unschedulable

    def with_pod(self, pod: QueuedPod) -> QueuedPodInfo:
        """Return a copy with another version of the pod."""
        return self._replace(pod=pod)

    def requeued(self, event: str, now_ns: int, *, is_active: bool) -> QueuedPodInfo:
        """Return the pod as it enters activeQ or a backoffQ by `event`.

        The first event since the last cycle counts: a pod that backs off enters activeQ by others.
        """
        if not self.attempts:
            return self
        requeue = self.requeue
        if requeue is None:
            requeue = Requeue(event, now_ns, now_ns if is_active else None)
        elif is_active and requeue.active_ns is None:
            requeue = requeue._replace(active_ns=now_ns)
        else:
            return self
        return self._replace(requeue=requeue)


class FailedPod(NamedTuple):
    """A pod to pop and add again at once, and why its cycle failed.

    `spread_selector` is as in QueuedPod.
    """

    uid: str
    failure: Failure
    spread_selector: LabelSelector | None = None


class PopId(NamedTuple):
    """The identity of a pop: the pod's UID and the scheduling cycle that the pop began."""

    uid: str
    cycle: int


class InFlightPod(NamedTuple):
    """A popped pod: in flight in one scheduling cycle until its outcome arrives.

    `pod_info` has the state before the pop. Attempts and times belong to the pop, not to the pod:
    without queueing hints, an update of a pod in flight queues a second copy with other values.
    `nominated_node_name` is the nomination at the pop, "" if none. The pop belongs to `owner` until
    `lease_until_ns`; 0 means without a limit.
    """

    pod_info: QueuedPodInfo
    cycle: int
    nominated_node_name: str
    owner: str = ""
    lease_until_ns: int = 0

    @property
    def pod(self) -> QueuedPod:
        """The pod as it was popped."""
        return self.pod_info.pod

    @property
    def attempts(self) -> int:
        """The number of attempts, including the one that this pop began."""
        return self.pod_info.attempts + 1

    @property
    def initial_attempt_ns(self) -> int:
        """When the pod was first added."""
        return self.pod_info.initial_attempt_ns or 0

    @property
    def timestamp_ns(self) -> int:
        """When the pod was added or last failed, before this pop."""
        return self.pod_info.timestamp_ns

    @property
    def id(self) -> PopId:
        """The identity by which the cycle's outcome names the pop."""
        return PopId(self.pod_info.pod.uid, self.cycle)
