"""The arguments that a configuration may set for each in-tree plugin, with upstream's defaults.

Source: kubernetes v1.34 pkg/scheduler/apis/config/types_pluginargs.go and v1/defaults.go.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from services.kube.pod import PreferredSchedulingTerm
from services.kube.selector import NodeSelector, TopologySpreadConstraint


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceWeight:
    """A resource that a score reads, and its weight, 1 to 100."""

    name: str = ""
    weight: int = 1


DEFAULT_RESOURCES = (ResourceWeight(name="cpu"), ResourceWeight(name="memory"))


class ScoringType(Enum):
    """How NodeResourcesFit scores what is used."""

    LEAST_ALLOCATED = "LeastAllocated"
    MOST_ALLOCATED = "MostAllocated"
    REQUESTED_TO_CAPACITY_RATIO = "RequestedToCapacityRatio"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapePoint:
    """A point of a broken line: a utilization, 0 to 100 %, and its score, 0 to 10."""

    utilization: int = 0
    score: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeResourcesFitArgs:
    """`ignored_resources` and `ignored_groups` (the part before "/") are ignored by the filter.

    `shape` is that of RequestedToCapacityRatio, by rising utilization.
    """

    ignored_resources: frozenset[str] = frozenset()
    ignored_groups: frozenset[str] = frozenset()
    scoring: ScoringType = ScoringType.LEAST_ALLOCATED
    resources: tuple[ResourceWeight, ...] = DEFAULT_RESOURCES
    shape: tuple[ShapePoint, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeResourcesBalancedAllocationArgs:
    """The resources whose evenness counts."""

    resources: tuple[ResourceWeight, ...] = DEFAULT_RESOURCES


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAffinityArgs:
    """Affinity that every pod of the profile has beside its own; None and () add nothing."""

    added_required: NodeSelector | None = None
    added_preferred: tuple[PreferredSchedulingTerm, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class InterPodAffinityArgs:
    """`hard_pod_affinity_weight`, 0 to 100, is what a required term of another pod scores.

    `ignore_preferred_terms_of_existing_pods` leaves other pods' terms out of the score where the
    pod itself has no preferred ones.
    """

    hard_pod_affinity_weight: int = 1
    ignore_preferred_terms_of_existing_pods: bool = False


class DefaultingType(Enum):
    """Which constraints a pod without any has: upstream's own, or those listed."""

    SYSTEM = "System"
    LIST = "List"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodTopologySpreadArgs:
    """`default_constraints` have no selector: it follows from the pod's services and owner."""

    default_constraints: tuple[TopologySpreadConstraint, ...] = ()
    defaulting_type: DefaultingType = DefaultingType.SYSTEM


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultPreemptionArgs:
    """How many candidates are tried at least: a share of the nodes, % of 100, and a number."""

    min_candidate_nodes_percentage: int = 10
    min_candidate_nodes_absolute: int = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeBindingArgs:
    """How long a binding may wait for its volumes, s."""

    bind_timeout_seconds: int = 600
