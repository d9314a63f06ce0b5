"""Sources of usage, and the selection of one: the source that the user names, or the best one.

Source: kubernetes v1.34 kubelet/pkg/apis/stats/v1alpha1/types.go (Summary, through the API server's
proxy), metrics/pkg/apis/metrics/v1beta1/types.go (NodeMetrics, PodMetrics); cAdvisor
docs/storage/prometheus.md (metrics), Prometheus HTTP API v1 (/api/v1/query).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

import orjson
import urllib3
from urllib3.exceptions import HTTPError

from replay.errors import ApiError, RecordError, UnreachableError
from replay.kube.changes import Raw
from replay.kube.kinds import NODES
from replay.record.api import ApiServer, plain_pool
from replay.record.usage import NodeUsage, ResourceUsage, UsageSource, number_at, total_usage
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
        source = PrometheusUsage(selection.removeprefix(_PROMETHEUS))
        source.sample([])
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
        nodes = api.get(NODES.path, {"limit": 3}).get("items") or ()
    except RecordError:
        return False
    return any(_answers(api, _summary_path(str(each["metadata"]["name"]))) for each in nodes)


def _answers(api: ApiServer, path: str) -> bool:
    """Return whether the API server serves a path. Raises RecordError where it does not answer."""
    try:
        api.get(path)
    except ApiError:
        return False
    return True


def _summary_path(node: str) -> str:
    return f"/api/v1/nodes/{quote(node)}/proxy/stats/summary"


class KubeletUsage:
    """Queries the kubelet of each node, eight at a time."""

    name = "kubelet"

    def __init__(self, api: ApiServer) -> None:
        self._api = api

    def sample(self, nodes: Sequence[str]) -> Sequence[NodeUsage]:
        """Return the usage of nodes that answer. Raises RecordError where no node answers."""
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            answers = list(pool.map(self._ask, nodes))
        found = [each for each in answers if isinstance(each, NodeUsage)]
        failed = [each for each in answers if isinstance(each, RecordError)]
        if failed and not found:
            raise failed[0]
        return found

    def _ask(self, node: str) -> NodeUsage | RecordError:
        try:
            return read_summary(node, self._api.get(_summary_path(node)))
        except RecordError as error:
            return error


def read_summary(node: str, summary: Raw) -> NodeUsage:
    """Return the usage in a kubelet's Summary."""
    own = summary.get("node") or {}
    pods = {}
    for each in summary.get("pods") or ():
        named = each.get("podRef") or {}
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
    containers = total_usage([_of_container(each) for each in raw.get("containers") or ()])
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
            (str((each.get("metadata") or {}).get("namespace")), _item_name(each)): total_usage(
                [
                    _metric_amounts(container.get("usage"))
                    for container in each.get("containers") or ()
                ]
            )
            for each in self._items("pods")
        }
        return [*found, NodeUsage(node="", whole=ResourceUsage(), pods=pods)]

    def _items(self, resource: str) -> list[Raw]:
        items = self._api.get(f"{_METRICS}/{resource}").get("items") or ()
        return [each for each in items if isinstance(each, dict)]


def _item_name(raw: Raw) -> str:
    return str((raw.get("metadata") or {}).get("name"))


def _metric_amounts(usage: object) -> ResourceUsage:
    amounts = usage if isinstance(usage, dict) else {}
    return ResourceUsage(
        cpu_milli=_whole(amounts.get("cpu"), quantity.milli),
        memory_bytes=_whole(amounts.get("memory"), quantity.value),
    )


def _whole(text: object, read: Callable[[str], int]) -> int | None:
    try:
        amount = read(text) if isinstance(text, str) else -1
    except quantity.QuantityError:
        return None
    return amount if amount >= 0 else None


class PrometheusUsage:
    """Queries the Prometheus at a URL, which may contain user and password."""

    name = "prometheus"

    def __init__(self, url: str) -> None:
        parsed = urllib3.util.parse_url(url)
        self._headers = urllib3.make_headers(basic_auth=parsed.auth) if parsed.auth else {}
        self._url = parsed._replace(auth=None).url.rstrip("/")
        self._pool = plain_pool()

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
        try:
            response = self._pool.request("GET", url, headers=self._headers, redirect=False)
            answer = orjson.loads(response.data)
        except (HTTPError, OSError) as error:
            raise UnreachableError(f"{self._url}: {error}") from error
        except orjson.JSONDecodeError as error:
            problem = "the answer is not JSON; check that this is a Prometheus"
            raise RecordError(f"{self._url}: {problem}") from error
        if not isinstance(answer, dict) or answer.get("status") != "success":
            why = answer.get("error") if isinstance(answer, dict) else response.status
            raise RecordError(f"{self._url}: the query is refused: {why}")
        for each in answer["data"].get("result") or ():
            value = float(each["value"][1])
            # NaN compares with nothing.
            if 0 <= value < 1 << 62:
                yield each["metric"], int(value)
