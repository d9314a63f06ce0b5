"""Usage from kubelets' /stats/summary, through the API server's proxy.

Source: kubernetes v1.34 kubelet/pkg/apis/stats/v1alpha1/types.go (Summary).
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote

from replay.record.api import ApiServer
from replay.record.errors import ApiError, RecordError
from replay.record.usage import Amounts, NodeUsage, Raw, number, summed

_AT_ONCE = 8
_NANO_PER_MILLI = 1_000_000


class KubeletUsage:
    """Asks every node's kubelet, a few at once."""

    name = "kubelet"

    def __init__(self, api: ApiServer) -> None:
        self._api = api

    def sample(self, nodes: Sequence[str]) -> Sequence[NodeUsage]:
        """Return what those nodes use that answer. Raises RecordError where none does."""
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            answers = list(pool.map(self._ask, nodes))
        found = [each for each in answers if isinstance(each, NodeUsage)]
        failed = [each for each in answers if isinstance(each, RecordError)]
        if failed and not found:
            raise failed[0]
        return found

    def _ask(self, node: str) -> NodeUsage | RecordError:
        path = f"/api/v1/nodes/{quote(node)}/proxy/stats/summary"
        try:
            return read_summary(node, self._api.get(path))
        except RecordError as error:
            return error


def is_served(api: ApiServer, node: str) -> bool:
    """Tell whether a node's kubelet may be asked. Raises RecordError where nobody answers."""
    try:
        api.get(f"/api/v1/nodes/{quote(node)}/proxy/stats/summary")
    except ApiError:
        return False
    return True


def read_summary(node: str, summary: Raw) -> NodeUsage:
    """Return what a kubelet's summary tells."""
    own = summary.get("node") or {}
    pods = {}
    for each in summary.get("pods") or ():
        named = each.get("podRef") or {}
        if amounts := _of_pod(each):
            pods[str(named.get("namespace")), str(named.get("name"))] = amounts
    whole = Amounts(
        cpu_milli=_milli(number(own, "cpu", "usageNanoCores")),
        memory_bytes=number(own, "memory", "workingSetBytes"),
        storage_bytes=_taken(own, "capacityBytes", "availableBytes"),
        inodes=_taken(own, "inodes", "inodesFree"),
        processes=number(own, "rlimit", "curproc"),
    )
    return NodeUsage(node=node, whole=whole, pods=pods)


def _of_pod(raw: Raw) -> Amounts:
    # A pod's own control group counts what its containers leave out; not every system has one.
    containers = summed([_of_container(each) for each in raw.get("containers") or ()])
    memory = number(raw, "memory", "workingSetBytes")
    cpu = number(raw, "cpu", "usageNanoCores")
    return Amounts(
        cpu_milli=containers.cpu_milli if cpu is None else _milli(cpu),
        memory_bytes=containers.memory_bytes if memory is None else memory,
        storage_bytes=number(raw, "ephemeral-storage", "usedBytes"),
        inodes=number(raw, "ephemeral-storage", "inodesUsed"),
        processes=number(raw, "process_stats", "process_count"),
    )


def _of_container(raw: Raw) -> Amounts:
    return Amounts(
        cpu_milli=_milli(number(raw, "cpu", "usageNanoCores")),
        memory_bytes=number(raw, "memory", "workingSetBytes"),
    )


def _taken(own: Raw, whole: str, free: str) -> int | None:
    """Return what is taken of a node's own file system, as its kubelet's thresholds see it."""
    there, left = number(own, "fs", whole), number(own, "fs", free)
    return None if there is None or left is None else max(0, there - left)


def _milli(nano_cores: int | None) -> int | None:
    return None if nano_cores is None else -(-nano_cores // _NANO_PER_MILLI)
