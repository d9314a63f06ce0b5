"""The cluster as a scan simulates it: nodes in order, their pods, and the scheduler's filters.

The filters are those of services/framework, over a snapshot that this class keeps equal to itself,
so that verdicts of earlier scans stand for what has not changed. No node is scored: the first that
passes takes the pod. The search is round robin: it begins after the node that took the last pod, by
its place in the list, and the place is kept for the life of the process.

`fork` begins changes that `revert` undoes; `commit` leaves them to the fork around. The undo is a
journal of the opposite steps. A scan is a fork over what the API server holds, so that the next
one begins with the differences only.

Most removals are undone before any verdict depends on them: no verdict is asked for on a removed
node, and only one that follows from other nodes and their pods would show that the node is still in
the framework's snapshot. So it is taken out of that snapshot right before such a verdict.

A node that was replaced keeps its place in the list. A pod may be simulated on a second node while
it is still on the first one, as pods of a drained node are: each copy has a UID of its own here.

Source: kubernetes/autoscaler 1.36 simulator/clustersnapshot/predicate/predicate_snapshot.go;
plugin_runner.go; simulator/clustersnapshot/scheduling_opts.go, lastIndexOrderMapping.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count
from operator import is_

import numpy as np

from services.autoscaler.core.objects import ClusterNode, ClusterPod
from services.framework.columns.columns import Int64s
from services.framework.plugin import AnyFilter, Scope
from services.framework.runtime.framework import Framework
from services.framework.runtime.verdicts import ClassVerdicts
from services.framework.snapshot.snapshot import Snapshot
from services.framework.status import Status
from services.kube.node import LABEL_HOSTNAME
from services.kube.pod import Pod, PodSpec


@dataclass(slots=True)
class _Held:
    """A node with its pods, each with the UID that it has in the framework's snapshot.

    Two holds with equal stamps, at whatever times, have the same node with the same pods.
    """

    node: ClusterNode
    stamp: int
    pods: list[ClusterPod] = field(default_factory=list)
    uids: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Listing:
    """The current nodes in order: names, rows in the framework's snapshot, and ranks.

    Ranks order the names of all nodes that were there since the state was set, and ascend here.
    """

    names: list[str]
    rows: list[int]
    ranks: list[int]
    _array: Int64s | None = None

    def insert(self, name: str, row: int, rank: int) -> None:
        """Insert a node at the place that its rank gives it."""
        place = bisect_left(self.ranks, rank)
        self.names.insert(place, name)
        self.rows.insert(place, row)
        self.ranks.insert(place, rank)
        self._array = None

    def remove(self, rank: int) -> None:
        """Remove the node of that rank."""
        place = bisect_left(self.ranks, rank)
        del self.names[place], self.rows[place], self.ranks[place]
        self._array = None

    def array(self) -> Int64s:
        """Return the rows, int64[nodes]."""
        if self._array is None:
            self._array = np.array(self.rows, dtype=np.int64)
        return self._array


Undo = Callable[[], None]
COPIES_MAX = 65_536
"""How many pods under other UIDs are kept for the next time that they are simulated."""


class ClusterSnapshot:
    """See the module. `last_place` is where the node that took the last pod stood in the list.

    `version` is equal, at whatever times, only where all nodes and pods are the same in all.
    """

    def __init__(self) -> None:
        self.last_place = self.version = 0
        self._filters = Snapshot()
        self._framework = Framework(self._filters)
        self._held: dict[str, _Held] = {}
        self._ranks: dict[str, int] = {}
        self._journal: list[tuple[int, Undo]] = []
        self._forks: list[int] = []
        self._removed: dict[str, _Held] = {}  # and still in the framework's snapshot
        self._listing = _Listing([], [], [])
        self._copies: dict[int, tuple[ClusterPod, Pod]] = {}
        self._copy_numbers = count(1)
        self._stamps = count(1)
        self._given: tuple[list[ClusterNode], list[ClusterPod]] | None = None

    # What is there.

    def names(self) -> list[str]:
        """Return the names of the nodes in their order."""
        return list(self._listing.names)

    def __contains__(self, name: object) -> bool:
        return name in self._held

    def __len__(self) -> int:
        return len(self._held)

    def node(self, name: str) -> ClusterNode:
        """Return an existing node."""
        return self._held[name].node

    def nodes(self) -> list[ClusterNode]:
        """Return the nodes in their order."""
        return [self._held[name].node for name in self._listing.names]

    def pods_on(self, name: str) -> list[ClusterPod]:
        """Return the pods of an existing node, in the order in which they were added."""
        return list(self._held[name].pods)

    def stamp(self, name: str) -> int:
        """Return a number that is equal only where a node and its pods are the same objects."""
        return self._held[name].stamp

    # Changes.

    def set_state(self, nodes: Iterable[ClusterNode], pods: Iterable[ClusterPod]) -> None:
        """Undo all forks, and hold these nodes and pods; nodes are in the order given.

        A pod whose node is not among them is left out.
        """
        while self._forks:
            self.revert()
        self._take_out_removed()
        nodes, pods = list(nodes), list(pods)
        given = self._given
        if given is not None and _are_same(nodes, given[0]) and _are_same(pods, given[1]):
            return
        self._given = nodes, pods
        wanted = {node.name: node for node in nodes}
        by_node: dict[str, list[ClusterPod]] = {name: [] for name in wanted}
        for pod in pods:
            name = pod.pod.node_name or pod.pod.nominated_node_name
            if name in by_node:
                by_node[name].append(pod)
        before = [*self._ranks], [held.stamp for held in self._held.values()]
        for name in [name for name in self._held if name not in wanted]:
            self._drop(name)
        self._take_out_removed()
        for name, node in wanted.items():
            held = self._held.get(name)
            if held is None:
                held = self._held[name] = _Held(node, next(self._stamps))
                self._filters.set_node(node.node)
            elif held.node is not node:
                held.node = node
                held.stamp = next(self._stamps)
                self._filters.set_node(node.node)
            self._set_pods(held, by_node[name])
        names = list(wanted)
        self._ranks = {name: rank for rank, name in enumerate(names)}
        rows = [self._row(name) for name in names]
        self._listing = _Listing(names, rows, list(range(len(names))))
        self._journal.clear()
        if before != (names, [held.stamp for held in self._held.values()]):
            self.version = next(self._stamps)

    def fork(self) -> None:
        """Begin changes that can be undone."""
        self._forks.append(len(self._journal))

    def revert(self) -> None:
        """Undo all changes since the last fork."""
        begin = self._forks.pop()
        while len(self._journal) > begin:
            self.version, undo = self._journal.pop()
            undo()

    def commit(self) -> None:
        """Leave the changes since the last fork to the fork around it."""
        self._forks.pop()

    def add(self, node: ClusterNode, pods: Iterable[ClusterPod] = ()) -> None:
        """Add a node with its pods, at the end unless it had a place before."""
        name = node.name
        assert name not in self._held, f"{name} is there already"
        if name in self._removed:
            self._take_out_removed()
        self._held[name] = _Held(node, next(self._stamps))
        self._filters.set_node(node.node)
        if name not in self._ranks:
            self._ranks[name] = len(self._ranks)
            self._note(lambda: self._forget_place(name))
        self._listing.insert(name, self._row(name), self._ranks[name])
        self._note(lambda: self._drop(name))
        for pod in pods:
            self._put(pod, name)

    def remove(self, name: str) -> None:
        """Remove a node with its pods; its place is kept."""
        held = self._held[name]
        self._drop(name)
        self._note(lambda: self._restore(held))

    def replace(self, node: ClusterNode) -> None:
        """Replace a node by one of the same name, without pods."""
        name = node.name
        held = self._held[name]
        for uid in held.uids:
            self._filters.remove_pod(uid)
        self._held[name] = _Held(node, next(self._stamps))
        self._filters.set_node(node.node)
        self._note(lambda: self._restore(held))

    def schedule(self, pod: ClusterPod, name: str) -> Status | None:
        """Put the pod on a node if it passes the filters; else return the refusal."""
        refusal = self.refusal(pod, name)
        if refusal is None:
            self._put(pod, name)
        return refusal

    def schedule_anywhere(
        self, pod: ClusterPod, is_acceptable: Callable[[str], bool] | None = None
    ) -> str | None:
        """Put the pod on the first acceptable node that passes, and return it; None: on none.

        A cordoned node is passed over even where the pod tolerates that.
        Source: RunFiltersUntilPassingNode.
        """
        for place, name in self._passing(pod):
            if is_acceptable is None or is_acceptable(name):
                self.last_place = place
                self._put(pod, name)
                return name
        return None

    def refusal(self, pod: ClusterPod, name: str) -> Status | None:
        """Return why the filters refuse the pod on a node, None where they do not."""
        verdicts = self._verdicts(pod)
        filters = verdicts.filters
        refused = filters.pre_filter.refusal
        if refused is not None:
            return refused
        row = self._row(name)
        refuser = int(verdicts.refuser[row])
        if refuser == 0:
            return None
        return filters.status(row) if refuser > 0 else filters.pre_filter.excluded

    def put(self, pod: ClusterPod, name: str) -> None:
        """Put a pod on a node without running the filters."""
        self._put(pod, name)

    def free(self, names: Iterable[str]) -> Int64s:
        """Return the free amounts of nodes, int64[nodes, amounts].

        Amounts are how many pods, and then each resource, by its column and one further.
        """
        rows = [self._row(name) for name in names]
        columns = self._filters.columns
        free = np.empty((len(rows), len(columns.resources) + 1), dtype=np.int64)
        free[:, 0] = columns.pods_max[rows] - columns.pod_count[rows]
        free[:, 1:] = columns.allocatable[rows] - columns.requested[rows]
        return free

    def requests_that_decide(self, pod: ClusterPod) -> Int64s | None:
        """Return the amounts that a pod wants of a node, as `free` has them, if only they decide.

        That is so where the pod passes on one of several nodes that differ in nothing but their
        names and the pods on them, and passes on each other one that has the amounts left, wherever
        other pods are. None where more decides, or no node can pass.
        """
        self._take_out_removed()
        verdicts, _ = self._framework.verdicts.pre_filtered(_unassigned(pod.pod))
        filters = verdicts.filters
        pre_filter = filters.pre_filter
        if pre_filter.refusal is not None or pre_filter.node_names is not None:
            return None
        if not all(_is_plain(column.plugin) for column in filters.columns.values()):
            return None
        if _names_nodes(pod.pod.spec):
            return None
        wanted = verdicts.wanted
        amounts = np.zeros(len(self._filters.columns.resources) + 1, dtype=np.int64)
        amounts[0] = 1
        amounts[wanted.columns + 1] = wanted.amounts
        return amounts

    def is_judged_by_node(self, pod: ClusterPod) -> bool:
        """Return whether a verdict about a pod follows from its node and the pods there alone."""
        verdicts, _ = self._framework.verdicts.pre_filtered(_unassigned(pod.pod))
        return _is_judged_by_node(verdicts)

    def fits_each(self, pod: ClusterPod, names: Sequence[str]) -> list[bool] | None:
        """Return whether the filters let a pod pass on each of the nodes.

        None where a verdict may follow from other nodes or the pods there.
        """
        if not self.is_judged_by_node(pod):
            return None
        verdicts = self._verdicts(pod)
        filters = verdicts.filters
        if filters.pre_filter.refusal is not None:
            return [False] * len(names)
        fits: list[bool] = (verdicts.refuser[[self._row(name) for name in names]] == 0).tolist()
        return fits

    def _passing(self, pod: ClusterPod) -> Iterator[tuple[int, str]]:
        """Yield place and name of the nodes that pass, from the one after the last match on."""
        names = self._listing.names
        if not names:
            return
        verdicts, rows = self._verdicts(pod), self._listing.array()
        if verdicts.filters.pre_filter.refusal is not None:
            return
        passes = (verdicts.refuser[rows] == 0) & ~self._filters.columns.unschedulable[rows]
        places = np.flatnonzero(passes)
        begin = int(np.searchsorted(places, (self.last_place + 1) % len(names)))
        for place in map(int, chain(places[begin:], places[:begin])):
            yield place, names[place]

    def _verdicts(self, pod: ClusterPod) -> ClassVerdicts:
        """Return the filters' verdicts about a pod, each as if what was removed were gone."""
        plain = _unassigned(pod.pod)
        if self._removed:
            verdicts, _ = self._framework.verdicts.pre_filtered(plain)
            if verdicts.filters.pre_filter.refusal or not _is_judged_by_node(verdicts):
                self._take_out_removed()
        return self._framework.verdicts.synced(plain)

    def _take_out_removed(self) -> None:
        removed, self._removed = self._removed, {}
        for name, held in removed.items():
            for uid in held.uids:
                self._filters.remove_pod(uid)
            self._filters.remove_node(name)

    def _row(self, name: str) -> int:
        row = self._filters.row(name)
        assert row is not None, f"{name} is not in the snapshot"
        return row

    def _note(self, undo: Undo) -> None:
        if self._forks:
            self._journal.append((self.version, undo))
        else:
            self._given = None
        self.version = next(self._stamps)

    def _put(self, pod: ClusterPod, name: str) -> None:
        held, stamp = self._held[name], self._held[name].stamp
        named = self._named(pod)
        uid = named.uid
        held.pods.append(pod)
        held.uids.append(uid)
        held.stamp = next(self._stamps)
        self._filters.assume(named, name)

        def undo() -> None:
            held.pods.pop()
            held.uids.pop()
            self._filters.remove_pod(uid)
            held.stamp = stamp

        self._note(undo)

    def _named(self, pod: ClusterPod) -> Pod:
        """Return a pod as the framework's snapshot can take it: under a UID that it lacks."""
        plain = pod.pod
        if self._filters.pod(plain.uid or pod.key) is None:
            return plain if plain.uid else replace(plain, uid=pod.key)
        copy = self._copies.get(id(pod))
        if copy is None or copy[0] is not pod or self._filters.pod(copy[1].uid) is not None:
            if len(self._copies) >= COPIES_MAX:
                self._copies.clear()
            uid = f"{plain.uid or pod.key}#{next(self._copy_numbers)}"
            copy = self._copies[id(pod)] = pod, replace(plain, uid=uid)
        return copy[1]

    def _drop(self, name: str) -> None:
        self._removed[name] = self._held.pop(name)
        self._listing.remove(self._ranks[name])

    def _restore(self, held: _Held) -> None:
        name = held.node.name
        if self._removed.get(name) is held:
            del self._removed[name]
            self._held[name] = held
            self._listing.insert(name, self._row(name), self._ranks[name])
            return
        is_there = name in self._held
        if is_there:
            for uid in self._held[name].uids:
                self._filters.remove_pod(uid)
        self._held[name] = held
        self._filters.set_node(held.node.node)
        if not is_there:
            self._listing.insert(name, self._row(name), self._ranks[name])
        for pod, uid in zip(held.pods, held.uids, strict=True):
            self._filters.assume(_renamed(pod, uid), name)

    def _forget_place(self, name: str) -> None:
        last, _ = self._ranks.popitem()
        assert last == name, f"{last} came after {name}"

    def _set_pods(self, held: _Held, pods: list[ClusterPod]) -> None:
        """Make a node's pods these, keeping those that are the same objects."""
        if _are_same(pods, held.pods):
            return
        known = dict(zip(map(id, held.pods), held.uids, strict=True))
        kept = {id(pod) for pod in pods}
        for pod, uid in zip(held.pods, held.uids, strict=True):
            if id(pod) not in kept:
                self._filters.remove_pod(uid)
        uids: list[str] = []
        for pod in pods:
            if id(pod) not in known:
                named = self._named(pod)
                known[id(pod)] = named.uid
                self._filters.assume(named, held.node.name)
            uids.append(known[id(pod)])
        held.pods, held.uids, held.stamp = pods, uids, next(self._stamps)


def _are_same(objects: Sequence[object], others: Sequence[object]) -> bool:
    """Return whether both are the same objects in the same order."""
    return len(objects) == len(others) and all(map(is_, objects, others))


def _is_judged_by_node(verdicts: ClassVerdicts) -> bool:
    """Return whether no verdict depends on other nodes and their pods."""
    columns = verdicts.filters.columns.values()
    return all(column.plugin.scope is not Scope.CLUSTER for column in columns)


def _is_plain(plugin: AnyFilter) -> bool:
    """Return whether a filter follows from the pod's spec and the node object, or counts requests.

    A filter whose key follows from more than the spec may have different verdicts for alike pods.
    """
    return plugin.is_resource_fit or (plugin.scope is Scope.NODE and not plugin.keys_follow_pod)


def _names_nodes(spec: PodSpec) -> bool:
    """Return whether a requirement on nodes may be about their names."""
    if LABEL_HOSTNAME in spec.node_selector:
        return True
    required = spec.node_affinity.required if spec.node_affinity else None
    return required is not None and any(
        term.match_fields
        or any(requirement.key == LABEL_HOSTNAME for requirement in term.match_expressions)
        for term in required.terms
    )


def _unassigned(pod: Pod) -> Pod:
    return replace(pod, node_name="") if pod.node_name else pod


def _renamed(pod: ClusterPod, uid: str) -> Pod:
    return pod.pod if pod.pod.uid == uid else replace(pod.pod, uid=uid)
