"""The queue's values: pending pods, QueuedPodInfo, and pods in flight.

The queue has no account of resources and nodes. Of a pod it reads identity, order, nomination and
gates, a digest that decides whether an update may have made the pod schedulable, the required
affinity terms that an assigned pod can match, and, for queueing hints, labels and spec.

All are immutable: an operation that changes a QueuedPodInfo replaces it, so that a snapshot shares
them. They are named tuples because every cycle of every pod makes one of each, and a frozen
dataclass takes three times as long to make and to hash.

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
"""A pod's namespace and name: what the sub-queues are keyed by. Nominations go by UID."""

_NO_LABELS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class AffinityTerm:
    """One required pod affinity term of a pending pod.

    `namespaces` is resolved: the pod's own namespace where the term neither names nor selects
    namespaces. `namespace_selector` None selects no namespace.
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
    """A pod with a node: what required affinity terms of pending pods are matched against.

    `namespace_labels` are its namespace's, for terms that select namespaces.
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

    `nominated_node_name` is status.nominatedNodeName, "" if none. `sort_key` is the QueueSort
    plugin's order as data, ascending; empty is the default order, priority descending. `gates` name
    the PreEnqueue plugins that reject the pod: it does not become active while there are any.
    `labels` and `spec` are what queueing hints read; `spec` is None before v1.34. `digest` covers
    everything outside status, resourceVersion and generation. Only an update compares digests, of
    its two versions; elsewhere it may be empty. `spread_selector` selects the pods that a profile's
    default spread constraints counted when they refused this one; None if they did not, or if
    the scheduler did not send it. `claim_names` are those of its ResourceClaims made from
    templates, by the pod's names for them.
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
        """The empty name, as a pending pod has no node yet: hints read queued and assigned pods."""
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

    `pending_plugins` are those that returned Pending: the pod waits for their own event (Permit,
    PreBind). `error` is a failure that no plugin decided.
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


class QueuedPodInfo(NamedTuple):
    """A pod in one of the sub-queues.

    `timestamp_ns` is when it was added or last failed; `initial_attempt_ns` when it was first added
    (v1.34: when it first entered activeQ, None before that); `attempts` counts its pops; `sequence`
    breaks ties of the timestamp in the order of arrival; `failure` is the last cycle's, None before
    the first. v1.34 backs off by `unschedulable_count`, the cycles in which plugins refused it, or
    by `consecutive_errors`, the failures in a row that no plugin decided; `gating_plugin` is the
    PreEnqueue plugin that rejected it last, "" if none.
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

    @property
    def key(self) -> PodKey:
        """The pod's namespace and name."""
        pod = self.pod
        return (pod.namespace, pod.name)

    @property
    def is_unschedulable(self) -> bool:
        """Whether plugins refused it, in its last cycle or, as gates, before its first."""
        return self.failure is not None and self.failure.is_unschedulable

    def with_pod(self, pod: QueuedPod) -> QueuedPodInfo:
        """Return a copy with another version of the pod."""
        return self._replace(pod=pod)


class FailedPod(NamedTuple):
    """A pod that is next, and why its cycle failed.

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

    `pod_info` is as before the pop: attempts and times belong to the pop, since without queueing
    hints an update of an in-flight pod queues a second copy with its own. `nominated_node_name` is
    the nominator's at the pop, "" if none. `owner` holds the pop until `lease_until_ns`; 0 is for
    ever.
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
        """Attempts so far, this one included."""
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
        """What the cycle's outcome names the pop by."""
        return PopId(self.pod_info.pod.uid, self.cycle)
