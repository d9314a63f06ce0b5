"""What an expander chooses from: for each group, the nodes that it would get, and their pods."""

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
    """A group, the number of nodes that it would get, and the pods that these would hold."""

    group: NodeGroup
    template: NodeTemplate
    node_count: int
    pods: tuple[ClusterPod, ...] = ()
    similar: tuple[NodeGroup, ...] = field(default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class PodPrice:
    """The price of what pods request for an hour: of a core, and of a GiB of memory."""

    core: float = 0.0
    gib: float = 0.0

    def of(self, requests: tuple[int, int]) -> float:
        """Return the price of so many thousandths of a core and bytes."""
        cpu_milli, memory_bytes = requests
        return self.core * cpu_milli / 1000 + self.gib * memory_bytes / 1024**3


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpanderContext:
    """What expanders read beside the options.

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
    """Return what a pod of that spec requests: thousandths of a core, and bytes of memory."""
    requests = pod_requests(spec)
    return requests.get(CPU, 0), requests.get(MEMORY, 0)
