"""Pods as the queue knows them, and QueuedPodInfo: a pod's time in the queue.

The queue has no account of resources and nodes: it knows identity, order, nomination, gates,
a digest that tells whether an update may have made the pod schedulable, the required
affinity terms that an assigned pod can satisfy, and, for queueing hints, labels and spec.

A pod's stay in the queue between two pops, and a pop itself.

Both are immutable: an operation that changes an entry puts another in its place, so a
snapshot shares them. They are named tuples because one of each is made in every cycle of
every pod, and a frozen dataclass takes three times as long to make and to hash.
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

    `namespaces` is resolved: the pod's own namespace where the term names none and selects
    none. `namespace_selector` None selects none.
    """

    namespaces: tuple[str, ...]
    selector: LabelSelector
    namespace_selector: LabelSelector | None = None

    def matches(self, assigned: AssignedPod) -> bool:
        """Tell whether `assigned` is one of the pods that the term asks for."""
        if assigned.namespace not in self.namespaces:
            selector = self.namespace_selector
            if selector is None or not selector.matches(assigned.namespace_labels):
                return False
        return self.selector.matches(assigned.labels)


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignedPod:
    """A pod with a node, as far as the affinity of pending pods is concerned.

    `namespace_labels` are those of its namespace, for terms that select namespaces.
    """

    namespace: str
    labels: Mapping[str, str]
    namespace_labels: Mapping[str, str] = field(default_factory=lambda: _NO_LABELS)


@value(kw_only=True)
class PodRef:
    """A pod's identity, without its contents."""

    uid: str
    namespace: str
    name: str

    @property
    def key(self) -> PodKey:
        """The namespace and the name."""
        return (self.namespace, self.name)


class QueuedPod(NamedTuple):
    """One version of a pending pod; a named tuple, as entries are, for there is one an Add.

    `nominated_node_name` is the one in the pod's status, "" for none. `sort_key` is the
    QueueSort plugin's order as data, ascending; empty is the default order, priority
    descending. `gates` name the PreEnqueue plugins that hold the pod back before it may
    become active. `labels` and `spec` are what queueing hints read; None where none does.
    `digest` covers everything outside status, resourceVersion and generation: two
    versions that differ there differ in their digest. Only an update compares digests, and
    only those of the two versions that it is given; elsewhere it may be empty.
    `spread_selector` picks the pods that a profile's default spread constraints counted when they
    refused this one, None where they did not or nobody told.
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

    @property
    def key(self) -> PodKey:
        """The namespace and the name."""
        return (self.namespace, self.name)

    @property
    def node_name(self) -> str:
        """Nothing: a pending pod has no node yet."""
        return ""

    @property
    def ref(self) -> PodRef:
        """The pod's identity alone."""
        return PodRef(uid=self.uid, namespace=self.namespace, name=self.name)

    def awaits(self, assigned: AssignedPod) -> bool:
        """Tell whether `assigned` matches any of the required affinity terms.

        Source: kubernetes v1.20 internal/queue/scheduling_queue.go,
        getUnschedulablePodsWithMatchingAffinityTerm.
        """
        return any(term.matches(assigned) for term in self.affinity_terms)


class Failure(NamedTuple):
    """Why a scheduling cycle failed: the plugins that refused the pod, or an error.

    `pending_plugins` are those that refused until an event of their own (Permit, PreBind).
    `error` is a failure that no plugin decided.
    """

    plugins: tuple[str, ...] = ()
    pending_plugins: tuple[str, ...] = ()
    error: bool = False

    @property
    def is_refusal(self) -> bool:
        """Tell whether any plugin refused the pod, or asked it to wait."""
        return bool(self.plugins or self.pending_plugins)

    def also_by(self, plugin: str) -> Failure:
        """Return the failure with one more refusing plugin; plugins stand in order of name."""
        if plugin in self.plugins:
            return self
        plugins = tuple(sorted((*self.plugins, plugin)))
        return Failure(plugins=plugins, pending_plugins=self.pending_plugins, error=self.error)


class Entry(NamedTuple):
    """A pod in one of the sub-queues.

    `timestamp_ns` is when it was added or last failed; `initial_attempt_ns` when it was
    first added (v1.34: when it was first let into activeQ, None before that); `attempts`
    counts its pops; `sequence` breaks ties of the timestamp in the order of arrival;
    `failure` is the last cycle's, None before the first. v1.34 backs off by `refusals`, the
    cycles in which plugins refused it, or by `errors`, the failures in a row that no plugin
    decided; `gate` names the PreEnqueue plugin that holds it back, "" for none.
    """

    pod: QueuedPod
    timestamp_ns: int
    initial_attempt_ns: int | None
    attempts: int
    sequence: int
    failure: Failure | None = None
    refusals: int = 0
    errors: int = 0
    gate: str = ""

    @property
    def key(self) -> PodKey:
        """The pod's namespace and name."""
        pod = self.pod
        return (pod.namespace, pod.name)

    @property
    def failed_by_plugins(self) -> bool:
        """Tell whether plugins refused it, in its last cycle or before its first."""
        return self.failure is not None and self.failure.is_refusal

    def with_pod(self, pod: QueuedPod) -> Entry:
        """Return the same stay with a newer version of the pod."""
        return self._replace(pod=pod)


class FailedPod(NamedTuple):
    """A pod that is next, and why its cycle will have failed.

    `spread_selector` is what default spread constraints counted, None where they did not refuse it.
    """

    uid: str
    failure: Failure
    spread_selector: LabelSelector | None = None


class PopId(NamedTuple):
    """What names a pop: the pod's UID and the scheduling cycle that the pop began."""

    uid: str
    cycle: int


class Popped(NamedTuple):
    """A pod handed out for one scheduling cycle, in flight until its outcome comes.

    `entry` is the stay that the pop ended: attempts and times belong to the pop, for an
    update of an in-flight pod queues a second copy of it with its own in older modes.
    `nominated_node_name` is what the nominator knew at the pop, "" for none. `owner` holds
    the pop until `lease_until_ns`; 0 is for ever.
    """

    entry: Entry
    cycle: int
    nominated_node_name: str
    owner: str = ""
    lease_until_ns: int = 0

    @property
    def pod(self) -> QueuedPod:
        """The pod as it was popped."""
        return self.entry.pod

    @property
    def attempts(self) -> int:
        """Attempts so far, this one included."""
        return self.entry.attempts + 1

    @property
    def initial_attempt_ns(self) -> int:
        """When the pod was first added."""
        return self.entry.initial_attempt_ns or 0

    @property
    def timestamp_ns(self) -> int:
        """When the pod was added or last failed, before this pop."""
        return self.entry.timestamp_ns

    @property
    def id(self) -> PopId:
        """The name under which the outcome is given back."""
        return PopId(self.entry.pod.uid, self.cycle)
