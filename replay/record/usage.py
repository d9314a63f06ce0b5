"""What pods and nodes use right now, from whichever source a cluster has.

Kubelets tell most (memory, CPU, disk, inodes, processes), metrics.k8s.io memory and CPU,
Prometheus what cAdvisor's metrics hold.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field, fields
from threading import Event, Lock
from typing import Any, Protocol

from replay.errors import RecordError
from replay.kube.changes import Raw, key, meta, node_name
from replay.record.frames import LineFile, arrival
from replay.record.redact import Redactor


@dataclass(frozen=True, slots=True, kw_only=True)
class Amounts:
    """What is used; None: not known. Memory is the working set.

    `cpu_milli` is thousandths of a core, `memory_bytes` and `storage_bytes` are bytes.
    """

    cpu_milli: int | None = None
    memory_bytes: int | None = None
    storage_bytes: int | None = None
    inodes: int | None = None
    processes: int | None = None

    def told(self) -> dict[str, int]:
        """Return the amounts that are known."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def __bool__(self) -> bool:
        return bool(self.told())


AMOUNTS = tuple(each.name for each in fields(Amounts))
"""The names of the amounts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeUsage:
    """What a node uses as a whole, and each pod that its source tells of, by (namespace, name)."""

    node: str
    whole: Amounts
    pods: Mapping[tuple[str, str], Amounts] = field(default_factory=dict)


class UsageSource(Protocol):
    """Whoever tells what is used; `name` is for people."""

    @property
    def name(self) -> str:
        """Return the source's name."""

    def sample(self, nodes: Sequence[str]) -> Sequence[NodeUsage]:
        """Return what is used now. Raises RecordError where nobody tells.

        Pods whose node the source does not tell stand under the node "".
        """


def summed(amounts: Sequence[Amounts]) -> Amounts:
    """Return the sums of what is known; None where nobody knows."""
    sums: dict[str, int] = {}
    for each in amounts:
        for name, value in each.told().items():
            sums[name] = sums.get(name, 0) + value
    return Amounts(**sums)


def number(raw: Raw, *path: str) -> int | None:
    """Return the number at a path of names; None where there is none, or it is below 0."""
    value: Any = raw
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if value >= 0 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodHere:
    """A pod that is there; `node` "" before it is bound."""

    uid: str
    node: str


class Roster:
    """Kept from what lists and watches bring; threads may ask at once."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._nodes: dict[str, None] = {}
        self._pods: dict[tuple[str, str], PodHere] = {}

    def see(self, kind: str, raw: Raw, *, is_gone: bool) -> None:
        """Take an object of a list or a watch; kinds other than nodes and pods are passed over."""
        name = name_of(raw)
        with self._lock:
            if kind == "Pod":
                self._see_pod(name, raw, is_gone=is_gone)
            elif kind == "Node" and is_gone:
                self._nodes.pop(name[1], None)
            elif kind == "Node":
                self._nodes[name[1]] = None

    def keep(self, kind: str, names: Set[tuple[str, str]]) -> None:
        """Forget the nodes or pods that a whole list, with these names, does not have."""
        with self._lock:
            if kind == "Node":
                self._nodes = {each: None for each in self._nodes if ("", each) in names}
            elif kind == "Pod":
                self._pods = {key: pod for key, pod in self._pods.items() if key in names}

    def nodes(self) -> list[str]:
        """Return the names of the nodes."""
        with self._lock:
            return list(self._nodes)

    def pod(self, namespace: str, name: str) -> PodHere | None:
        """Return the pod of that name, None where there is none."""
        with self._lock:
            return self._pods.get((namespace, name))

    def _see_pod(self, key: tuple[str, str], raw: Raw, *, is_gone: bool) -> None:
        uid = str(meta(raw).get("uid") or "")
        known = self._pods.get(key)
        if is_gone:
            # Another one may have taken the name already.
            if known is not None and known.uid == uid:
                del self._pods[key]
            return
        self._pods[key] = PodHere(uid=uid, node=node_name(raw))


def name_of(raw: Raw) -> tuple[str, str]:
    """Return an object's namespace ("" where it has none) and name."""
    return key(raw)[1:]


@dataclass(slots=True, kw_only=True)
class UsageLog:
    """The log of usage beside the frames: every so often, what each node and pod uses.

    Lines {"arrival": TIME, "nodes": {NAME: AMOUNTS}, "pods": {UID: AMOUNTS}}. A node's amounts are
    what is used beside its pods. The `source` is sampled until `ending` is set; `run` is a
    thread's. `samples` counts those that told anything; `problem` is what went wrong last, "" for
    nothing.
    """

    source: UsageSource
    file: LineFile
    roster: Roster
    redactor: Redactor | None
    ending: Event
    now_ns: Callable[[], int]
    every_s: float
    samples: int = 0
    problem: str = ""
    _asked: set[str] = field(default_factory=set)
    _told: set[str] = field(default_factory=set)

    def run(self) -> None:
        """Sample at once and then every so often; what fails is tried again the next time."""
        while not self.ending.is_set():
            nodes = self.roster.nodes()
            if nodes:
                self._sample(nodes)
            # Until the nodes are known there is nobody to ask.
            self.ending.wait(self.every_s if nodes else min(0.1, self.every_s))

    def silent(self) -> list[str]:
        """Return the nodes of which nothing was ever told."""
        return sorted(self._asked - self._told)

    def _sample(self, nodes: Sequence[str]) -> None:
        self._asked.update(nodes)
        try:
            found = self.source.sample(nodes)
            line = self._line(found)
            self._told.update(each.node for each in found if each.whole)
            if line["nodes"] or line["pods"]:
                self.file.write({"arrival": arrival(self.now_ns()), **line})
                self.samples += 1
            self.problem = ""
        except (RecordError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            # What a source answers is not ours to trust, and no reason to end a recording.
            self.problem = f"usage ({self.source.name}): {error}"

    def _line(self, found: Sequence[NodeUsage]) -> dict[str, dict[str, dict[str, int]]]:
        pods: dict[str, dict[str, int]] = {}
        by_node: dict[str, list[Amounts]] = {}
        for each in found:
            for (namespace, name), amounts in each.pods.items():
                pod = self.roster.pod(namespace, name)
                if pod is None:
                    continue
                pods[self._shown(pod.uid)] = amounts.told()
                by_node.setdefault(each.node or pod.node, []).append(amounts)
        nodes = {
            self._shown(each.node): beside(each.whole, summed(by_node.get(each.node, ())))
            for each in found
            if each.node and each.whole
        }
        return {"nodes": nodes, "pods": pods}

    def _shown(self, text: str) -> str:
        return self.redactor.text(text) if self.redactor else text


def beside(whole: Amounts, pods: Amounts) -> dict[str, int]:
    """Return what is used beside the pods: never less than nothing."""
    told: Mapping[str, int] = pods.told()
    return {
        name: max(0, value - told.get(name, 0))
        for name, value in whole.told().items()
        if name in AMOUNTS
    }
