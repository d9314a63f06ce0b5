"""Sources of usage, and the selection of one: the source that the user names, or the best one.

Source: kubernetes v1.34 kubelet/pkg/apis/stats/v1alpha1/types.go (Summary, through the API server's
proxy), metrics/pkg/apis/metrics/v1beta1/types.go (NodeMetrics, PodMetrics); cAdvisor
docs/storage/prometheus.md (metrics), Prometheus HTTP API v1 (/api/v1/query).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any
from urllib.parse import quote, urlencode

import orjson
import urllib3

from replay.errors import ApiError, RecordError
from replay.kube.changes import Raw, meta, part, parts
from replay.kube.kinds import NODES
from replay.record.api import ApiServer
from replay.record.backoff import Backoff, retry_after_s
from replay.record.http_client import pool_manager
from replay.record.kubeconfig import without_user
from replay.record.usage import (
    AMOUNT_MAX,
    MALFORMED,
    NodeUsage,
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
_OF_PODS = 'container!="",pod!=""'
_POD_QUERIES = {
    "memory_bytes": f"sum by (namespace, pod) (container_memory_working_set_bytes{{{_OF_PODS}}})",
    "cpu_milli": "1000 * sum by (namespace, pod) "
    f"(rate(container_cpu_usage_seconds_total{{{_OF_PODS}}}[5m]))",
    "storage_bytes": f"sum by (namespace, pod) (container_fs_usage_bytes{{{_OF_PODS}}})",
}
_NODE_QUERIES = {
    "memory_bytes": 'max by (node) (container_memory_working_set_bytes{id="/",node!=""})',
    "cpu_milli": "1000 * max by (node) "
    '(rate(container_cpu_usage_seconds_total{id="/",node!=""}[5m]))',
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenSource:
    """The selected source, or None; `why` is for people."""

    source: UsageSource | None
    why: str


def choose_source(selection: str, api: ApiServer) -> ChosenSource:
    """Return the source for "auto", "kubelet", "metrics", "prometheus=URL" or "off".

    "auto" prefers kubelets, which report more than metrics.k8s.io. Raises RecordError where a
    source that is selected by name does not answer.
    """
    if selection == "off":
        return ChosenSource(source=None, why="--usage off")
    if selection.startswith(_PROMETHEUS):
        source = PrometheusUsage(selection.removeprefix(_PROMETHEUS), api)
        source.check()
        return ChosenSource(source=source, why="--usage prometheus")
    if selection in {"auto", "kubelet"} and _kubelets_answer(api):
        return ChosenSource(source=KubeletUsage(api), why=f"{selection}: kubelets answer")
    if selection in {"auto", "metrics"} and _answers(api, f"{_METRICS}/nodes"):
        return ChosenSource(source=MetricsUsage(api), why=f"{selection}: metrics.k8s.io is served")
    if selection != "auto":
        rule = {"kubelet": "get nodes/proxy", "metrics": "list nodes and pods of metrics.k8s.io"}
        raise RecordError(
            f"--usage {selection}: the source does not answer, or refuses the request; check that "
            f"it is installed, and that the user's role allows to {rule[selection]}"
        )
    return ChosenSource(source=None, why="neither kubelets nor metrics.k8s.io answer")


def _kubelets_answer(api: ApiServer) -> bool:
    """Return whether one of the first three nodes' kubelets answers; a single one may be down."""
    try:
        nodes = parts(api.get(NODES.path, {"limit": 3}), "items")[:3]
    except RecordError:
        return False
    return any(_answers(api, _summary_path(_item_name(each))) for each in nodes)


def _answers(api: ApiServer, path: str) -> bool:
    """Return whether the API server serves a path. Raises RecordError where it does not answer."""
    try:
        api.get(path, of="usage")
    except ApiError:
        return False
    return True


def _summary_path(node: str) -> str:
    return f"/api/v1/nodes/{quote(node, safe='')}/proxy/stats/summary"


@dataclass(slots=True, kw_only=True, eq=False)
class _Kubelet:
    """One kubelet: it is not asked again before `due_s`."""

    backoff: Backoff = field(default_factory=Backoff)
    due_s: float = 0.0


class KubeletUsage:
    """Queries the kubelet of each node, eight at a time; those that fail, less often."""

    name = "kubelet"

    def __init__(self, api: ApiServer) -> None:
        self._api = api
        self._kubelets: dict[str, _Kubelet] = {}

    def sample(self, nodes: Sequence[str]) -> Sequence[NodeUsage]:
        """Return the usage of nodes that answer. Raises RecordError where no node answers."""
        self._kubelets = {each: self._kubelets.get(each) or _Kubelet() for each in nodes}
        waiting, answers = SimpleQueue[str](), list[NodeUsage | RecordError]()
        for node, kubelet in self._kubelets.items():
            if kubelet.backoff.clock() >= kubelet.due_s:
                waiting.put(node)
        # Daemons, unlike the threads of an executor: a process ends although they wait.
        threads = [
            Thread(target=self._ask_all, args=(waiting, answers), daemon=True)
            for _ in range(min(_AT_ONCE, waiting.qsize()))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        found = [each for each in answers if isinstance(each, NodeUsage)]
        failed = [each for each in answers if isinstance(each, RecordError)]
        if failed and not found:
            raise failed[0]
        return found

    def _ask_all(self, waiting: SimpleQueue[str], answers: list[NodeUsage | RecordError]) -> None:
        """Ask the kubelets of `waiting` until it is empty; the body of a thread."""
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
    own = part(summary, "node")
    pods = {}
    for each in parts(summary, "pods"):
        named = part(each, "podRef")
        if amounts := _of_pod(each):
            pods[str(named.get("namespace")), str(named.get("name"))] = amounts
    whole = ResourceUsage(
        cpu_milli=_milli(number_at(own, "cpu", "usageNanoCores")),
        memory_bytes=number_at(own, "memory", "workingSetBytes"),
        storage_bytes=_used(own, "capacityBytes", "availableBytes"),
        inodes=_used(own, "inodes", "inodesFree"),
        processes=number_at(own, "rlimit", "curproc"),
    )
    return NodeUsage(node=node, whole=whole, pods=pods)


def _of_pod(raw: Raw) -> ResourceUsage:
    # The pod's cgroup counts more than its containers; some systems do not report it.
    containers = total_usage([_of_container(each) for each in parts(raw, "containers")])
    memory = number_at(raw, "memory", "workingSetBytes")
    cpu = number_at(raw, "cpu", "usageNanoCores")
    return ResourceUsage(
        cpu_milli=containers.cpu_milli if cpu is None else _milli(cpu),
        memory_bytes=containers.memory_bytes if memory is None else memory,
        storage_bytes=number_at(raw, "ephemeral-storage", "usedBytes"),
        inodes=number_at(raw, "ephemeral-storage", "inodesUsed"),
        processes=number_at(raw, "process_stats", "process_count"),
    )


def _of_container(raw: Raw) -> ResourceUsage:
    return ResourceUsage(
        cpu_milli=_milli(number_at(raw, "cpu", "usageNanoCores")),
        memory_bytes=number_at(raw, "memory", "workingSetBytes"),
    )


def _used(own: Raw, capacity: str, available: str) -> int | None:
    """Return the usage of a node's file system, as the kubelet's thresholds read it."""
    total, rest = number_at(own, "fs", capacity), number_at(own, "fs", available)
    return None if total is None or rest is None else max(0, total - rest)


def _milli(nano_cores: int | None) -> int | None:
    return None if nano_cores is None else -(-nano_cores // _NANO_PER_MILLI)


class MetricsUsage:
    """Lists the metrics of all nodes and pods."""

    name = "metrics.k8s.io"

    def __init__(self, api: ApiServer) -> None:
        self._api = api

    def sample(self, nodes: Sequence[str]) -> Sequence[NodeUsage]:
        """Return the usage of nodes and pods; pods are under the node "". Raises RecordError."""
        wanted = set(nodes)
        found = [
            NodeUsage(node=_item_name(each), whole=_metric_amounts(each.get("usage")))
            for each in self._items("nodes")
            if _item_name(each) in wanted
        ]
        pods = {
            (str(meta(each).get("namespace")), _item_name(each)): total_usage(
                [_metric_amounts(container.get("usage")) for container in parts(each, "containers")]
            )
            for each in self._items("pods")
        }
        return [*found, NodeUsage(node="", whole=ResourceUsage(), pods=pods)]

    def _items(self, resource: str) -> list[Raw]:
        return parts(self._api.get(f"{_METRICS}/{resource}", of="usage"), "items")


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


class PrometheusUsage:
    """Queries the Prometheus at a URL, which may contain user and password."""

    name = "prometheus"

    def __init__(self, url: str, api: ApiServer) -> None:
        try:
            parsed = urllib3.util.parse_url(url)
        except ValueError as error:
            problem = f"{without_user(url)!r} is not the URL of a server"
            raise RecordError(f"--usage prometheus: {problem}") from error
        self._headers = urllib3.make_headers(basic_auth=parsed.auth) if parsed.auth else {}
        self._secrets = [parsed.auth, parsed.auth.partition(":")[2]] if parsed.auth else []
        self._url = parsed._replace(auth=None).url.rstrip("/")
        self._api = api
        self._pool = pool_manager()

    def check(self) -> None:
        """Raise RecordError where the queries are not answered."""
        try:
            self.sample([])
        except RecordError:
            raise
        except MALFORMED as error:
            raise RecordError(f"{self._url}: a malformed answer") from error

    def sample(self, nodes: Sequence[str]) -> Sequence[NodeUsage]:
        """Return the usage of nodes and pods; pods are under the node "". Raises RecordError."""
        wanted = set(nodes)
        of_nodes = self._gathered(_NODE_QUERIES, "node")
        found = [
            NodeUsage(node=node, whole=ResourceUsage(**amounts))
            for (node,), amounts in of_nodes.items()
            if node in wanted
        ]
        of_pods = self._gathered(_POD_QUERIES, "namespace", "pod")
        pods = {(key[0], key[1]): ResourceUsage(**amounts) for key, amounts in of_pods.items()}
        return [*found, NodeUsage(node="", whole=ResourceUsage(), pods=pods)]

    def _gathered(
        self, queries: dict[str, str], *labels: str
    ) -> dict[tuple[str, ...], dict[str, int]]:
        result: dict[tuple[str, ...], dict[str, int]] = {}
        for amount, query in queries.items():
            for metric, value in self._ask(query):
                key = tuple(str(metric.get(label) or "") for label in labels)
                result.setdefault(key, {})[amount] = value
        return result

    def _ask(self, query: str) -> Iterator[tuple[dict[str, Any], int]]:
        url = f"{self._url}/api/v1/query?{urlencode({'query': query})}"
        opened = self._api.connections.get(
            self._pool,
            url,
            {**self._headers, "Accept-Encoding": "gzip"},
            server=self._url,
            where=self._url,
            bound="usage_s",
        )
        with opened as response:
            try:
                answer = orjson.loads(response.body("usage_bytes"))
            except orjson.JSONDecodeError as error:
                problem = "the answer is not JSON; check that this is a Prometheus"
                raise RecordError(f"{self._url}: {problem}") from error
        if not isinstance(answer, dict) or answer.get("status") != "success":
            why = str(answer.get("error") if isinstance(answer, dict) else response.status)
            header = response.headers.get("Retry-After")
            refusal = RecordError(f"{self._url}: the query is refused: {self._shown(why)}")
            refusal.retry_after_s = retry_after_s(response.status, header, time.time_ns())
            raise refusal
        for each in answer["data"].get("result") or ():
            value = float(each["value"][1])
            # NaN compares with nothing.
            if 0 <= value < 1 << 62:
                yield each["metric"], int(value)

    def _shown(self, text: str) -> str:
        for each in filter(None, self._secrets):
            text = text.replace(each, "***")
        return self._api.shown(text)
