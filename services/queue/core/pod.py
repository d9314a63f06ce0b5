"""What the queue knows of a pod, and of the assigned pods that may help it.

The queue has no account of resources and nodes: it knows identity, order, nomination, gates,
a digest that tells whether an update may have made the pod schedulable, the required
affinity terms that an assigned pod can satisfy, and, for queueing hints, labels and spec.
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
