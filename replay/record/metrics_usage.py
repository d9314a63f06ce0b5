"""Usage from metrics.k8s.io, which metrics-server or an adapter serves: memory and CPU.

Source: kubernetes v1.34 metrics/pkg/apis/metrics/v1beta1/types.go (NodeMetrics, PodMetrics).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from replay.record.api import ApiServer
from replay.record.errors import ApiError
from replay.record.usage import Amounts, NodeUsage, Raw, summed
from services.kube import quantity

_ROOT = "/apis/metrics.k8s.io/v1beta1"


class MetricsUsage:
    """Asks for the metrics of all nodes and pods."""

    name = "metrics.k8s.io"

    def __init__(self, api: ApiServer) -> None:
        self._api = api

    def sample(self, nodes: Sequence[str]) -> Sequence[NodeUsage]:
        """Return what nodes and pods use; pods stand under the node "". Raises RecordError."""
        wanted = set(nodes)
        found = [
            NodeUsage(node=_name(each), whole=_amounts(each.get("usage")))
            for each in self._items("nodes")
            if _name(each) in wanted
        ]
        pods = {
            (str((each.get("metadata") or {}).get("namespace")), _name(each)): summed(
                [_amounts(container.get("usage")) for container in each.get("containers") or ()]
            )
            for each in self._items("pods")
        }
        return [*found, NodeUsage(node="", whole=Amounts(), pods=pods)]

    def _items(self, resource: str) -> list[Raw]:
        items = self._api.get(f"{_ROOT}/{resource}").get("items") or ()
        return [each for each in items if isinstance(each, dict)]


def is_served(api: ApiServer) -> bool:
    """Tell whether metrics are served to us. Raises RecordError where nobody answers."""
    try:
        api.get(f"{_ROOT}/nodes")
    except ApiError:
        return False
    return True


def _name(raw: Raw) -> str:
    return str((raw.get("metadata") or {}).get("name"))


def _amounts(usage: object) -> Amounts:
    told = usage if isinstance(usage, dict) else {}
    return Amounts(
        cpu_milli=_whole(told.get("cpu"), quantity.milli),
        memory_bytes=_whole(told.get("memory"), quantity.value),
    )


def _whole(text: object, read: Callable[[str], int]) -> int | None:
    try:
        amount = read(text) if isinstance(text, str) else -1
    except quantity.QuantityError:
        return None
    return amount if amount >= 0 else None
