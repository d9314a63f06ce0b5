"""Usage from a Prometheus that scrapes the kubelets' cAdvisor.

Source: cAdvisor docs/storage/prometheus.md (metrics), Prometheus HTTP API v1 (/api/v1/query).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import urlencode

import orjson
import urllib3
from urllib3.exceptions import HTTPError

from replay.record.api import plain_pool
from replay.record.errors import RecordError, UnreachableError
from replay.record.usage import Amounts, NodeUsage

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


class PrometheusUsage:
    """Asks a Prometheus at a URL; user and password may stand in it."""

    name = "prometheus"

    def __init__(self, url: str) -> None:
        parsed = urllib3.util.parse_url(url)
        self._headers = urllib3.make_headers(basic_auth=parsed.auth) if parsed.auth else {}
        self._url = parsed._replace(auth=None).url.rstrip("/")
        self._pool = plain_pool()

    def sample(self, nodes: Sequence[str]) -> Sequence[NodeUsage]:
        """Return what nodes and pods use; pods stand under the node "". Raises RecordError."""
        wanted = set(nodes)
        of_nodes = self._gathered(_NODE_QUERIES, "node")
        found = [
            NodeUsage(node=node, whole=Amounts(**amounts))
            for (node,), amounts in of_nodes.items()
            if node in wanted
        ]
        of_pods = self._gathered(_POD_QUERIES, "namespace", "pod")
        pods = {(key[0], key[1]): Amounts(**amounts) for key, amounts in of_pods.items()}
        return [*found, NodeUsage(node="", whole=Amounts(), pods=pods)]

    def _gathered(
        self, queries: dict[str, str], *labels: str
    ) -> dict[tuple[str, ...], dict[str, int]]:
        """Return the values of all queries by the series' labels."""
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
            raise RecordError(f"{self._url}: the answer is no JSON: no Prometheus?") from error
        if not isinstance(answer, dict) or answer.get("status") != "success":
            said = answer.get("error") if isinstance(answer, dict) else response.status
            raise RecordError(f"{self._url}: the query is refused: {said}")
        for each in answer["data"].get("result") or ():
            value = float(each["value"][1])
            # NaN compares with nothing.
            if 0 <= value < 1 << 62:
                yield each["metric"], int(value)
