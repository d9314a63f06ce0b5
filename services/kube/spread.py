"""Topology spread constraints: how unevenly pods may spread over domains.

Source: kubernetes v1.34 api/core/v1/types.go, TopologySpreadConstraint.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from services.kube.selector import LabelSelector


class UnsatisfiableAction(Enum):
    """What a constraint does to a node that would break it."""

    DO_NOT_SCHEDULE = "DoNotSchedule"
    SCHEDULE_ANYWAY = "ScheduleAnyway"


class NodeInclusionPolicy(Enum):
    """Whether nodes that would refuse the pod anyway are left out of the count."""

    HONOR = "Honor"
    IGNORE = "Ignore"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologySpreadConstraint:
    """A bound on the difference between a domain and the emptiest one.

    `selector` picks the pods that are counted; None matches none. With fewer domains than
    `min_domains` the emptiest counts as 0. Counted pods must share the values of the pod's own
    labels named by `match_label_keys`.
    """

    max_skew: int
    topology_key: str
    when_unsatisfiable: UnsatisfiableAction
    selector: LabelSelector | None = None
    min_domains: int = 1
    node_affinity_policy: NodeInclusionPolicy = NodeInclusionPolicy.HONOR
    node_taints_policy: NodeInclusionPolicy = NodeInclusionPolicy.IGNORE
    match_label_keys: tuple[str, ...] = ()
