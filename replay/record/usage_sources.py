"""Sources of usage, and the selection of one: the source that the user names, or the best source.

Source: kubernetes v1.34 kubelet/pkg/apis/stats/v1alpha1/types.go (Summary, through the API server's
proxy), metrics/pkg/apis/metrics/v1beta1/types.go (NodeMetrics, PodMetrics).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from threading import Thread
from urllib.parse import quote

from replay.errors import ApiError, RecordError
from replay.kube.changes import Raw, meta, part, parts
from replay.kube.kinds import NODES
from replay.record.api import ApiServer
from replay.record.backoff import Backoff
from replay.record.prometheus import PrometheusUsage
from replay.record.usage import (
    AMOUNT_MAX,
    MALFORMED,
    NodeUsage,
    PodUsage,
    ResourceUsage,
    UsageSource,
    number_at,
    total_usage,
)
from services.kube import quantity

_PROMETHEUS = "prometheus="
_AT_ONCE = 8
_NANO_PER_MILLI = 1_000_000
_METRICS = "/apis/metrics.k8s.io/v1beta1"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenSource:
    """The selected source, or None; `why` is the reason, for users.

    `refused` has the namespaces for which the source reports no usage, with the reasons.
    """

    source: UsageSource | None
    why: str
    refused: Mapping[str, str] = field(default_factory=dict)


def choose_source(selection: str, api: ApiServer, namespaces: Sequence[str] = ()) -> ChosenSource:
    """Return the source for "auto", "kubelet", "metrics", "prometheus=URL" or "off".

    "auto" prefers kubelets, which report more than metrics.k8s.io. `namespaces` are the recorded
    namespaces, () for all. Raises RecordError if a source that is selected by name does not answer.
    """
    if selection == "off":
        return ChosenSource(source=None, why="--usage off")
    if selection.startswith(_PROMETHEUS):
        source = PrometheusUsage(selection.removeprefix(_PROMETHEUS), api, namespaces)
        source.check()
        return ChosenSource(source=source, why="--usage prometheus")
    if selection in {"auto", "kubelet"} and _kubelets_answer(api):
        return ChosenSource(source=KubeletUsage(api), why=f"{selection}: kubelets answer")
    if selection in {"auto", "metrics"}:
        why = f"{selection}: metrics.k8s.io is served"
        if namespaces and (chosen := _metrics_of(namespaces, api, why)):
            return chosen
        if not namespaces and _answers(api, f"{_METRICS}/nodes"):
            return ChosenSource(source=MetricsUsage(api), why=why)
    if selection != "auto":
        rule = {"kubelet": "get nodes/proxy", "metrics": "list nodes and pods of metrics.k8s.io"}
        raise RecordError(
            f"--usage {selection}: the source does not answer, or refuses the request; check that "
            f"it is installed, and that the user's role allows to {rule[selection]}"
        )
    return ChosenSource(source=None, why="neither kubelets nor metrics.k8s.io answer")


def _metrics_of(namespaces: Sequence[str], api: ApiServer, why: str) -> ChosenSource | None:
    """Return metrics.k8s.io for `namespaces`; None if it answers for none of them.

    Pods are queried at the cluster scope if that is allowed, otherwise in each namespace.
    """
    refused: dict[str, str] = {}
    paths = [f"{_METRICS}/pods"]
    if not _answers(api, paths[0]):
        by_namespace = {
            namespace: f"{_METRICS}/namespaces/{namespace}/pods" for namespace in namespaces
        }
        refusals = {namespace: _refusal(api, path) for namespace, path in by_namespace.items()}
        refused = {namespace: problem for namespace, problem in refusals.items() if problem}
        paths = [path for namespace, path in by_namespace.items() if not refusals[namespace]]
    has_nodes = _answers(api, f"{_METRICS}/nodes")
    if not paths and not has_nodes:
        return None
    source = MetricsUsage(api, pod_paths=paths, has_nodes=has_nodes)
    return ChosenSource(source=source, why=why, refused=refused)


def _kubelets_answer(api: ApiServer) -> bool:
    """Return whether the kubelet of any of the first three nodes answers; one may be down."""
    try:
        nodes = parts(api.get(NODES.path, {"limit": 3}), "items")[:3]
    except RecordError:
        return False
    return any(_answers(api, _summary_path(_item_name(node))) for node in nodes)


def _answers(api: ApiServer, path: str) -> bool:
    """Return whether the API server serves a path. Raises RecordError if it does not answer."""
    return not _refusal(api, path)


def _refusal(api: ApiServer, path: str) -> str:
    """Return why the API server does not serve a path; "" if it does. Raises as `_answers`."""
    try:
        api.get(path, of="usage")
    except ApiError as error:
        return str(error)
    return ""


def _summary_path(node: str) -> str:
    return f"/api/v1/nodes/{quote(node, safe='')}/proxy/stats/summary"


@dataclass(slots=True, kw_only=True, eq=False)
class _Kubelet:
    """The state of one kubelet; it is not queried before `due_s`."""

    backoff: Backoff = field(default_factory=Backoff)
    due_s: float = 0.0


class KubeletUsage:
    """Queries the kubelets of all nodes, eight at a time; a kubelet that fails, less often."""

    name = "kubelet"

    def __init__(self, api: ApiServer) -> None:
        self._api = api
        self._kubelets: dict[str, _Kubelet] = {}

    def sample(self, nodes: Sequence[str]) -> Sequence[NodeUsage]:
        """Return the usage of nodes that answer. Raises RecordError if no node answers."""
        self._kubelets = {node: self._kubelets.get(node) or _Kubelet() for node in nodes}
        waiting, answers = SimpleQueue[str](), list[NodeUsage | RecordError]()
        for node, kubelet in self._kubelets.items():
            if kubelet.backoff.clock() >= kubelet.due_s:
                waiting.put(node)
        # Daemon threads, unlike an executor's, do not keep the process alive while they wait.
        threads = [
            Thread(target=self._ask_all, args=(waiting, answers), daemon=True)
            for _ in range(min(_AT_ONCE, waiting.qsize()))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        usages = [answer for answer in answers if isinstance(answer, NodeUsage)]
        failed = [answer for answer in answers if isinstance(answer, RecordError)]
        if failed and not usages:
            raise failed[0]
        return usages

    def _ask_all(self, waiting: SimpleQueue[str], answers: list[NodeUsage | RecordError]) -> None:
        """Query the kubelets of the nodes in `waiting` until it is empty; runs in a thread."""
        while True:
            try:
                node = waiting.get_nowait()
            except Empty:
                return
            answers.append(self._ask(node, self._kubelets[node]))

    def _ask(self, node: str, kubelet: _Kubelet) -> NodeUsage | RecordError:
        kubelet.backoff.begin()
        path = _summary_path(node)
        try:
            return read_summary(node, self._api.get(path, of="usage"))
        except RecordError as error:
            problem = error
        except MALFORMED:
            problem = RecordError(f"{path}: a malformed answer")
        wait_s = kubelet.backoff.wait_s(problem.retry_after_s)
        kubelet.due_s = kubelet.backoff.clock() + wait_s
        return problem


def read_summary(node: str, summary: Raw) -> NodeUsage:
    """Return the usage in a kubelet's Summary."""
    node_summary = part(summary, "node")
    pods = {}
    for pod in parts(summary, "pods"):
        named = part(pod, "podRef")
        if (usage := _of_pod(pod)).whole:
            pods[str(named.get("namespace")), str(named.get("name"))] = usage
    whole = ResourceUsage(
        cpu_milli=_milli(number_at(node_summary, "cpu", "usageNanoCores")),
        memory_bytes=number_at(node_summary, "memory", "workingSetBytes"),
        storage_bytes=_used(node_summary, "capacityBytes", "availableBytes"),
        inodes=_used(node_summary, "inodes", "inodesFree"),
        processes=number_at(node_summary, "rlimit", "curproc"),
    )
    return NodeUsage(node=node, whole=whole, pods=pods)


def _of_pod(raw: Raw) -> PodUsage:
    # The pod's cgroup uses more than its containers together; some systems do not report it.
    by_name = {
        str(container.get("name")): _of_container(container)
        for container in parts(raw, "containers")
    }
    containers = total_usage(list(by_name.values()))
    memory = number_at(raw, "memory", "workingSetBytes")
    cpu = number_at(raw, "cpu", "usageNanoCores")
    whole = ResourceUsage(
        cpu_milli=containers.cpu_milli if cpu is None else _milli(cpu),
        memory_bytes=containers.memory_bytes if memory is None else memory,
        storage_bytes=number_at(raw, "ephemeral-storage", "usedBytes"),
        inodes=number_at(raw, "ephemeral-storage", "inodesUsed"),
        processes=number_at(raw, "process_stats", "process_count"),
    )
    return PodUsage(whole=whole, containers=by_name)


def _of_container(raw: Raw) -> ResourceUsage:
    return ResourceUsage(
        cpu_milli=_milli(number_at(raw, "cpu", "usageNanoCores")),
        memory_bytes=number_at(raw, "memory", "workingSetBytes"),
    )


def _used(node_summary: Raw, capacity: str, available: str) -> int | None:
    """Return the usage of a node's file system as the kubelet's thresholds define it."""
    total, rest = number_at(node_summary, "fs", capacity), number_at(node_summary, "fs", available)
    return None if total is None or rest is None else max(0, total - rest)


def _milli(nano_cores: int | None) -> int | None:
    return None if nano_cores is None else -(-nano_cores // _NANO_PER_MILLI)


class MetricsUsage:
    """Lists the metrics of all nodes or of none, and of the pods at each of `pod_paths`."""

    name = "metrics.k8s.io"

    def __init__(
        self,
        api: ApiServer,
        *,
        pod_paths: Sequence[str] = (f"{_METRICS}/pods",),
        has_nodes: bool = True,
    ) -> None:
        self._api = api
        self._pod_paths = pod_paths
        self._node_paths = [f"{_METRICS}/nodes"] if has_nodes else []

    def sample(self, nodes: Sequence[str]) -> Sequence[NodeUsage]:
        """Return the usage of nodes and pods; all pods are in the entry of node "".

        Raises RecordError.
        """
        node_names = set(nodes)
        usages = [
            NodeUsage(node=_item_name(item), whole=_metric_amounts(item.get("usage")))
            for item in self._items(self._node_paths)
            if _item_name(item) in node_names
        ]
        pods = {
            (str(meta(item).get("namespace")), _item_name(item)): _metrics_of_pod(item)
            for item in self._items(self._pod_paths)
        }
        return [*usages, NodeUsage(node="", whole=ResourceUsage(), pods=pods)]

    def _items(self, paths: Sequence[str]) -> list[Raw]:
        """Return the items of all paths that answer. Raises RecordError if no path answers."""
        items, failed = list[Raw](), list[RecordError]()
        for path in paths:
            try:
                items += parts(self._api.get(path, of="usage"), "items")
            except RecordError as error:
                failed.append(error)
        if failed and len(failed) == len(paths):
            raise failed[0]
        return items


def _metrics_of_pod(raw: Raw) -> PodUsage:
    containers = {
        str(container.get("name")): _metric_amounts(container.get("usage"))
        for container in parts(raw, "containers")
    }
    return PodUsage(whole=total_usage(list(containers.values())), containers=containers)


def _item_name(raw: Raw) -> str:
    return str(meta(raw).get("name"))


def _metric_amounts(usage: object) -> ResourceUsage:
    amounts = usage if isinstance(usage, dict) else {}
    return ResourceUsage(
        cpu_milli=_whole(amounts.get("cpu"), quantity.milli),
        memory_bytes=_whole(amounts.get("memory"), quantity.value),
    )


def _whole(text: object, read: Callable[[str], int]) -> int | None:
    try:
        amount = read(text) if isinstance(text, str) else -1
    except (quantity.QuantityError, ArithmeticError):
        return None
    return amount if 0 <= amount <= AMOUNT_MAX else None
