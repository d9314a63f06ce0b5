"""The current usage of pods and nodes, and the log of it.

Kubelets report memory, CPU, disk, inodes and processes, metrics.k8s.io reports memory and CPU, and
Prometheus has the metrics of cAdvisor (usage_sources.py, prometheus.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field, fields
from threading import Event, Lock
from typing import Any, Protocol

from replay.errors import RecordError
from replay.kube.changes import Raw, key, meta, node_name
from replay.record.backoff import Backoff
from replay.record.frames import LineFile
from replay.record.redact import Redactor
from services.rpc.kube import rfc3339


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceUsage:
    """The usage of a pod or a node; an amount that the source does not report is None.

    `memory_bytes` is the working set; `inodes` and `processes` are counts.
    """

    cpu_milli: int | None = None
    memory_bytes: int | None = None
    storage_bytes: int | None = None
    inodes: int | None = None
    processes: int | None = None

    def to_mapping(self) -> dict[str, int]:
        """Return the reported amounts by name."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def __bool__(self) -> bool:
        return bool(self.to_mapping())


AMOUNT_MAX = 2**62
"""The largest accepted amount; it fits in an int64, as does any float up to it."""
MALFORMED = (ArithmeticError, AttributeError, LookupError, RecordError, TypeError, ValueError)
"""Exceptions that a malformed response of a source can raise."""
USAGE_FIELDS = tuple(usage_field.name for usage_field in fields(ResourceUsage))
"""The names of the amounts of ResourceUsage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodUsage:
    """The usage of a pod, and of its containers by name if the source reports them."""

    whole: ResourceUsage
    containers: Mapping[str, ResourceUsage] = field(default_factory=dict)

    def to_mapping(self) -> dict[str, Any]:
        """Return the reported amounts by name; "containers" has the amounts of each container."""
        containers = {
            name: usage.to_mapping() for name, usage in self.containers.items() if name and usage
        }
        return self.whole.to_mapping() | ({CONTAINERS: containers} if containers else {})


CONTAINERS = "containers"
"""The key of a pod's usage by container, in a line of UsageLog."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeUsage:
    """The usage of a whole node, and of its pods by (namespace, name)."""

    node: str
    whole: ResourceUsage
    pods: Mapping[tuple[str, str], PodUsage] = field(default_factory=dict)


class UsageSource(Protocol):
    """A source of usage."""

    @property
    def name(self) -> str:
        """Return the source's name, for users."""

    def sample(self, nodes: Sequence[str]) -> Sequence[NodeUsage]:
        """Return the current usage. Raises RecordError if the source does not answer.

        Pods whose node the source does not report are in the NodeUsage of node "".
        """


def total_usage(amounts: Sequence[ResourceUsage]) -> ResourceUsage:
    """Return the sum of each amount, at most AMOUNT_MAX; None if nobody reports the amount."""
    sums: dict[str, int] = {}
    for usage in amounts:
        for name, value in usage.to_mapping().items():
            sums[name] = min(AMOUNT_MAX, sums.get(name, 0) + value)
    return ResourceUsage(**sums)


def number_at(raw: Raw, *path: str) -> int | None:
    """Return the integer part of the number at a path of names.

    None without a number from 0 to AMOUNT_MAX.
    """
    value: Any = raw
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if 0 <= value <= AMOUNT_MAX else None


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexedPod:
    """An existing pod; `node` is "" before it is bound."""

    uid: str
    node: str


class ClusterIndex:
    """The existing nodes and pods, from lists and watches; thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._nodes: dict[str, None] = {}
        self._pods: dict[tuple[str, str], IndexedPod] = {}
        self._lacks_nodes = False

    @property
    def is_ready(self) -> bool:
        """Return whether there is something to sample: nodes, or pods if nodes are refused."""
        with self._lock:
            return bool(self._nodes) or (self._lacks_nodes and bool(self._pods))

    def refuse(self, kind: str) -> None:
        """Note that the server refuses to list a kind."""
        if kind == "Node":
            self._lacks_nodes = True

    def see(self, kind: str, raw: Raw, *, is_gone: bool) -> None:
        """Add, replace or remove (`is_gone`) a node or pod; ignore objects of other kinds."""
        name = name_of(raw)
        with self._lock:
            if kind == "Pod":
                self._see_pod(name, raw, is_gone=is_gone)
            elif kind == "Node" and is_gone:
                self._nodes.pop(name[1], None)
            elif kind == "Node":
                self._nodes[name[1]] = None

    def keep(self, kind: str, names: Set[tuple[str, str]], namespace: str = "") -> None:
        """Remove the nodes or pods whose names are not in a complete list.

        `namespace` is the namespace of the list, "" for all namespaces.
        """
        with self._lock:
            if kind == "Node":
                self._nodes = {node: None for node in self._nodes if ("", node) in names}
            elif kind == "Pod":
                self._pods = {
                    key: pod
                    for key, pod in self._pods.items()
                    if key in names or namespace not in {"", key[0]}
                }

    def nodes(self) -> list[str]:
        """Return the names of the nodes in the order of their creation events."""
        with self._lock:
            return list(self._nodes)

    def pod(self, namespace: str, name: str) -> IndexedPod | None:
        """Return the pod of that name, None if it does not exist."""
        with self._lock:
            return self._pods.get((namespace, name))

    def _see_pod(self, key: tuple[str, str], raw: Raw, *, is_gone: bool) -> None:
        uid = str(meta(raw).get("uid") or "")
        indexed = self._pods.get(key)
        if is_gone:
            # A new pod may already have the same name.
            if indexed is not None and indexed.uid == uid:
                del self._pods[key]
            return
        self._pods[key] = IndexedPod(uid=uid, node=node_name(raw))


def name_of(raw: Raw) -> tuple[str, str]:
    """Return an object's namespace ("" if it has none) and name."""
    return key(raw)[1:]


@dataclass(slots=True, kw_only=True)
class UsageLog:
    """Logs samples of the usage of nodes and pods.

    A line is {"arrival": TIME, "nodes": {NAME: AMOUNTS}, "pods": {UID: AMOUNTS}}; a pod's amounts
    may include the amounts of its containers. A node's amounts exclude those of its pods. `source`
    is sampled until `ending` is set; `run` is the body of a thread. `samples` counts lines;
    `problem` is the last failure, "" after a success.
    """

    source: UsageSource
    file: LineFile
    index: ClusterIndex
    redactor: Redactor | None
    ending: Event
    now_ns: Callable[[], int]
    every_s: float
    backoff: Backoff = field(default_factory=Backoff)
    samples: int = 0
    problem: str = ""
    _queried: set[str] = field(default_factory=set)
    _reported: set[str] = field(default_factory=set)

    def run(self) -> None:
        """Sample at once and then every `every_s`; wait longer after a failure (`backoff`)."""
        while not self.ending.is_set():
            # Before the first list of nodes there is no kubelet to query.
            is_ready = self.index.is_ready
            wait_s = self._sample(self.index.nodes()) if is_ready else min(0.1, self.every_s)
            self.ending.wait(wait_s)

    def silent(self) -> list[str]:
        """Return the nodes without any reported usage."""
        return sorted(self._queried - self._reported)

    def _sample(self, nodes: Sequence[str]) -> float:
        """Log one sample; return the seconds until the next."""
        self._queried.update(nodes)
        self.backoff.begin()
        try:
            node_usages = self.source.sample(nodes)
            line = self._line(node_usages)
            self._reported.update(node_usage.node for node_usage in node_usages if node_usage.whole)
            if line["nodes"] or line["pods"]:
                self.file.write({"arrival": rfc3339.text(self.now_ns(), 6), **line})
                self.samples += 1
            self.problem = ""
        except MALFORMED as error:
            # A malformed answer must not end the recording.
            problem = str(error) if isinstance(error, RecordError) else "a malformed answer"
            self.problem = f"usage ({self.source.name}): {problem}"
            asked_s = error.retry_after_s if isinstance(error, RecordError) else 0.0
            return max(self.every_s, self.backoff.wait_s(asked_s))
        return self.every_s

    def _line(self, node_usages: Sequence[NodeUsage]) -> dict[str, dict[str, dict[str, Any]]]:
        pods: dict[str, dict[str, Any]] = {}
        by_node: dict[str, list[ResourceUsage]] = {}
        for node_usage in node_usages:
            for (namespace, name), amounts in node_usage.pods.items():
                pod = self.index.pod(namespace, name)
                if pod is None:
                    continue
                pods[self._shown(pod.uid)] = self._of_pod(amounts)
                by_node.setdefault(node_usage.node or pod.node, []).append(amounts.whole)
        nodes = {
            self._shown(node_usage.node): usage_without_pods(
                node_usage.whole, total_usage(by_node.get(node_usage.node, ()))
            )
            for node_usage in node_usages
            if node_usage.node and node_usage.whole
        }
        return {"nodes": nodes, "pods": pods}

    def _of_pod(self, usage: PodUsage) -> dict[str, Any]:
        """Return a pod's amounts; names of containers are redacted as all names are."""
        amounts = usage.to_mapping()
        if CONTAINERS in amounts:
            containers = amounts[CONTAINERS].items()
            amounts[CONTAINERS] = {
                self._shown(name): container_usage for name, container_usage in containers
            }
        return amounts

    def _shown(self, text: str) -> str:
        return self.redactor.text(text) if self.redactor else text


def usage_without_pods(whole: ResourceUsage, pods: ResourceUsage) -> dict[str, int]:
    """Return a node's usage minus its pods' usage, at least 0."""
    of_pods = pods.to_mapping()
    return {
        name: max(0, value - of_pods.get(name, 0)) for name, value in whole.to_mapping().items()
    }
