"""The options of an expander: for each group, the nodes to add and the pods for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from services.autoscaler.core.groups import NodeGroup
from services.autoscaler.core.objects import ClusterPod
from services.autoscaler.core.simulator.templates import NodeTemplate
from services.kube.pod import PodSpec
from services.kube.requests import CPU, MEMORY, pod_requests

Choose = Callable[[Sequence[str]], str]
"""Chooses one of several groups that are equally good, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpansionOption:
    """A group, the number of nodes to add to it, and the pods that fit on them."""

    group: NodeGroup
    template: NodeTemplate
    node_count: int
    pods: tuple[ClusterPod, ...] = ()
    similar: tuple[NodeGroup, ...] = field(default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class PodPrice:
    """The hourly price of requests: of a core, and of a GiB of memory."""

    core: float = 0.0
    gib: float = 0.0

    def of(self, requests: tuple[int, int]) -> float:
        """Return the hourly price of `requests`, which are millicores and bytes."""
        cpu_milli, memory_bytes = requests
        return self.core * cpu_milli / 1000 + self.gib * memory_bytes / 1024**3


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpanderContext:
    """The input of expanders beside the options.

    priorities: the text of the priority expander's config map, None without one. cluster_nodes: the
    number of nodes in the cluster.
    """

    pod_price: PodPrice = field(default_factory=PodPrice)
    priorities: str | None = None
    cluster_nodes: int = 0
    gpu_label: str = ""


class Filter(Protocol):
    """Returns the best of some options: all of them that are equally good."""

    def __call__(
        self, options: Sequence[ExpansionOption], context: ExpanderContext
    ) -> list[ExpansionOption]:
        """Return the best options, in their order."""


def requested(spec: PodSpec) -> tuple[int, int]:
    """Return the requests of a pod: CPU in millicores, and memory in bytes."""
    requests = pod_requests(spec)
    return requests.get(CPU, 0), requests.get(MEMORY, 0)
