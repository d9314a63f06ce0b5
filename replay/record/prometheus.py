"""Reads the usage of pods and nodes from a Prometheus that scrapes cAdvisor's metrics.

Source: cAdvisor docs/storage/prometheus.md (metrics), Prometheus HTTP API v1 (/api/v1/query).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import urlencode

import orjson
import urllib3

from replay.errors import RecordError
from replay.record.api import ApiServer
from replay.record.backoff import retry_after_s
from replay.record.http_client import pool_manager
from replay.record.kubeconfig import without_user
from replay.record.usage import MALFORMED, NodeUsage, PodUsage, ResourceUsage, total_usage

_OF_PODS = 'container!="",pod!=""'
_POD_QUERIES = {
    # A restarted container may have two series for a while.
    "memory_bytes": "max by (namespace, pod, container) "
    f"(container_memory_working_set_bytes{{{_OF_PODS}}})",
    "cpu_milli": "1000 * sum by (namespace, pod, container) "
    f"(rate(container_cpu_usage_seconds_total{{{_OF_PODS}}}[5m]))",
    "storage_bytes": f"sum by (namespace, pod, container) (container_fs_usage_bytes{{{_OF_PODS}}})",
}
_NODE_QUERIES = {
    "memory_bytes": 'max by (node) (container_memory_working_set_bytes{id="/",node!=""})',
    "cpu_milli": "1000 * max by (node) "
    '(rate(container_cpu_usage_seconds_total{id="/",node!=""}[5m]))',
}


class PrometheusUsage:
    """Queries the Prometheus at a URL, which may contain user and password.

    Only pods in `namespaces` are queried, () for all.
    """

    name = "prometheus"

    def __init__(self, url: str, api: ApiServer, namespaces: Sequence[str] = ()) -> None:
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
        selected = f'{_OF_PODS},namespace=~"{"|".join(namespaces)}"' if namespaces else _OF_PODS
        self._pod_queries = {
            amount: query.replace(_OF_PODS, selected) for amount, query in _POD_QUERIES.items()
        }

    def check(self) -> None:
        """Raise RecordError if Prometheus does not answer the queries."""
        try:
            self.sample([])
        except RecordError:
            raise
        except MALFORMED as error:
            raise RecordError(f"{self._url}: a malformed answer") from error

    def sample(self, nodes: Sequence[str]) -> Sequence[NodeUsage]:
        """Return the usage of nodes and pods; all pods are in the entry of node "".

        Raises RecordError.
        """
        node_names = set(nodes)
        of_nodes = self._gathered(_NODE_QUERIES, "node")
        node_usages = [
            NodeUsage(node=node, whole=ResourceUsage(**amounts))
            for (node,), amounts in of_nodes.items()
            if node in node_names
        ]
        containers: dict[tuple[str, str], dict[str, ResourceUsage]] = {}
        gathered = self._gathered(self._pod_queries, "namespace", "pod", "container")
        for (namespace, pod, container), amounts in gathered.items():
            containers.setdefault((namespace, pod), {})[container] = ResourceUsage(**amounts)
        pods = {
            key: PodUsage(whole=total_usage(list(usages.values())), containers=usages)
            for key, usages in containers.items()
        }
        return [*node_usages, NodeUsage(node="", whole=ResourceUsage(), pods=pods)]

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
        for series in answer["data"].get("result") or ():
            value = float(series["value"][1])
            # This also excludes NaN.
            if 0 <= value < 1 << 62:
                yield series["metric"], int(value)

    def _shown(self, text: str) -> str:
        for secret in filter(None, self._secrets):
            text = text.replace(secret, "***")
        return self._api.shown(text)
