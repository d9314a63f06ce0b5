"""Which source of usage a recording takes: the one that is asked for, or the best that is there."""

from __future__ import annotations

from dataclasses import dataclass

from replay.record import kubelet_usage, metrics_usage
from replay.record.api import ApiServer
from replay.record.errors import RecordError
from replay.record.kubelet_usage import KubeletUsage
from replay.record.metrics_usage import MetricsUsage
from replay.record.prometheus_usage import PrometheusUsage
from replay.record.resources import NODES
from replay.record.usage import UsageSource

_PROMETHEUS = "prometheus="


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The source, None for none; `why` is for people."""

    source: UsageSource | None
    why: str


def choose(wish: str, api: ApiServer) -> Choice:
    """Return the source for "auto", "kubelet", "metrics", "prometheus=URL" or "off".

    A kubelet tells more than metrics.k8s.io. Raises RecordError where a source that is asked for by
    name does not answer.
    """
    if wish == "off":
        return Choice(source=None, why="not asked for")
    if wish.startswith(_PROMETHEUS):
        source = PrometheusUsage(wish.removeprefix(_PROMETHEUS))
        source.sample([])
        return Choice(source=source, why="asked for")
    if wish in {"auto", "kubelet"} and _kubelets_answer(api):
        return Choice(source=KubeletUsage(api), why=f"{wish}: kubelets answer")
    if wish in {"auto", "metrics"} and metrics_usage.is_served(api):
        return Choice(source=MetricsUsage(api), why=f"{wish}: metrics.k8s.io is served")
    if wish != "auto":
        needs = {"kubelet": "get on nodes/proxy", "metrics": "list on nodes and pods of it"}[wish]
        raise RecordError(
            f"--usage {wish}: it does not answer us; is it there, and may we {needs}?"
        )
    return Choice(source=None, why="neither kubelets nor metrics.k8s.io answer us")


def _kubelets_answer(api: ApiServer) -> bool:
    """Tell whether one of the first nodes' kubelets may be asked; one alone may be down."""
    try:
        nodes = api.get(NODES.path, {"limit": 3}).get("items") or ()
    except RecordError:
        return False
    return any(kubelet_usage.is_served(api, str(each["metadata"]["name"])) for each in nodes)
