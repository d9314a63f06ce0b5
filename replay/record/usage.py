"""What pods and nodes use right now, from whichever source a cluster has.

Kubelets tell most (memory, CPU, disk, inodes, processes), metrics.k8s.io memory and CPU,
Prometheus what cAdvisor's metrics hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Protocol

Raw = Mapping[str, Any]


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
