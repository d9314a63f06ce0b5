"""What the queue knows of a pod, and of the assigned pods that may help it.

The queue sees no resources and no nodes: identity, order, nomination, gates, a digest
that tells whether an update may have made the pod schedulable, and the required
affinity terms that an assigned pod can satisfy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

PodKey = tuple[str, str]
"""A pod's namespace and name: what the sub-queues are keyed by. Nominations go by UID."""

Rank = tuple[int, bytes]
"""The default order's number and the sort key: almost always only one of them says anything."""


class LabelMatcher(Protocol):
    """A label selector, already parsed."""

    def matches(self, labels: Mapping[str, str], /) -> bool:
        """Tell whether `labels` are selected."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AffinityTerm:
    """One required pod affinity term of a pending pod.

    `namespaces` is resolved: the pod's own namespace where the term names none.
    """

    namespaces: tuple[str, ...]
    selector: LabelMatcher


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignedPod:
    """A pod with a node, as far as the affinity of pending pods is concerned."""

    namespace: str
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
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
    descending. `gates` name what holds the pod back before it may become active.
    `digest` covers everything outside status, resourceVersion and generation: two
    versions that differ there differ in their digest. Only an update compares digests, and
    only those of the two versions that it is given; elsewhere it may be empty.
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

    @property
    def key(self) -> PodKey:
        """The namespace and the name."""
        return (self.namespace, self.name)

    @property
    def ref(self) -> PodRef:
        """The pod's identity alone."""
        return PodRef(uid=self.uid, namespace=self.namespace, name=self.name)

    @property
    def rank(self) -> Rank:
        """The pod's place among pending pods, least first; equal ranks go by queue time.

        Pods with a sort key stand as if of priority 0 among pods without one.
        Source: kubernetes v1.20 plugins/queuesort/priority_sort.go, Less.
        """
        return (0, self.sort_key) if self.sort_key else (-self.priority, b"")

    def awaits(self, assigned: AssignedPod) -> bool:
        """Tell whether `assigned` matches any of the required affinity terms.

        Source: kubernetes v1.20 internal/queue/scheduling_queue.go,
        getUnschedulablePodsWithMatchingAffinityTerm.
        """
        return any(
            assigned.namespace in term.namespaces and term.selector.matches(assigned.labels)
            for term in self.affinity_terms
        )
