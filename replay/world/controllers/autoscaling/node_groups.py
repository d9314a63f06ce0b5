"""The node groups of a run: sizes, templates of new nodes, prices, delays.

A node that the cloud has made belongs to the group that its annotation names, a node of the trace
to the first group that picks it, by its labels or by its name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from reprieve.autoscaler.v1beta1 import autoscaler_pb2
from reprieve.kube.v1beta1 import node_pb2
from services.kube.time import SECOND_NS

GROUP_ANNOTATION = "reprieve/node-group"
"""The annotation of a node that the cloud has made: its group."""
SCAN_INTERVAL_NS = 10 * SECOND_NS
"""The default of the flag --scan-interval."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGroup:
    """A group of nodes.

    template: a node of the group; its name has no meaning. labels, names: which nodes of the trace
    are in the group: those with all of the labels, and those of these names. price: of a node for
    an hour, None if unknown. provisioning_ns: from the request for a node until it is ready. Of
    several values, each node has a random one; without a value, that of the model counts.
    options: by the names of flags, in place of the autoscaler's.
    """

    name: str
    min_size: int
    max_size: int
    template: node_pb2.Node
    labels: Mapping[str, str] = field(default_factory=dict)
    names: frozenset[str] = frozenset()
    price: float | None = None
    provisioning_ns: tuple[int, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)

    def picks(self, node: node_pb2.Node) -> bool:
        """Return whether a node of the trace is in the group."""
        if node.metadata.name in self.names:
            return True
        labels = node.metadata.labels
        return bool(self.labels) and all(
            labels.get(key) == value for key, value in self.labels.items()
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Autoscaling:
    """The autoscaler's configuration, its groups in their order, and what the world knows of it.

    scan_interval_ns: how often it scans. pod_delay_ns: how old a pod is before it counts.
    """

    config: autoscaler_pb2.AutoscalerConfig
    groups: Sequence[NodeGroup]
    scan_interval_ns: int = SCAN_INTERVAL_NS
    pod_delay_ns: int = 0

    def group_of(self, node: node_pb2.Node) -> NodeGroup | None:
        """Return the group that a node is in, None for a node of no group."""
        made_for = node.metadata.annotations.get(GROUP_ANNOTATION)
        if made_for is not None:
            return next((group for group in self.groups if group.name == made_for), None)
        return next((group for group in self.groups if group.picks(node)), None)
