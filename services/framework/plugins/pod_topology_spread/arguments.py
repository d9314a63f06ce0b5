"""Arguments of PodTopologySpread: the constraints of pods without any of their own.

Source: kubernetes v1.34 staging/src/k8s.io/kube-scheduler/config/v1/types_pluginargs.go,
pkg/scheduler/apis/config/v1/defaults.go, pkg/scheduler/apis/config/validation/
validation_pluginargs.go.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from services.config.strict import check_name, checked
from services.framework.arguments import Arguments
from services.kube.selector import LabelSelector, TopologySpreadConstraint
from services.typed import DataError, Reading


class DefaultingType(Enum):
    """The default constraints of a pod without any: upstream's own, or those listed."""

    SYSTEM = "System"
    LIST = "List"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodTopologySpreadArgs:
    """`default_constraints` have no selector: it follows from the pod's services and owner."""

    default_constraints: tuple[TopologySpreadConstraint, ...] = ()
    defaulting_type: DefaultingType = DefaultingType.SYSTEM


@checked.register
def _(args: PodTopologySpreadArgs) -> PodTopologySpreadArgs:
    seen: set[tuple[str, object]] = set()
    for index, constraint in enumerate(args.default_constraints):
        same = (constraint.topology_key, constraint.when_unsatisfiable)
        if same in seen:
            text = "another constraint has the same key and action"
            raise DataError(f"defaultConstraints[{index}]", text)
        seen.add(same)
    if args.defaulting_type is DefaultingType.SYSTEM and args.default_constraints:
        raise DataError("defaultingType", "must be List when .defaultConstraints are not empty")
    return args


@checked.register
def _(constraint: TopologySpreadConstraint) -> TopologySpreadConstraint:
    if constraint.max_skew <= 0:
        raise DataError("maxSkew", "not in valid range (0, inf)")
    if not constraint.topology_key:
        raise DataError("topologyKey", "can not be empty")
    check_name(constraint.topology_key, "topologyKey")
    return replace(constraint, min_domains=constraint.min_domains or 1)


def _no_selector(_data: object) -> LabelSelector:
    raise DataError("", "constraint must not define a selector, as they deduced for each pod")


def _defaulting(data: object) -> DefaultingType:
    return DefaultingType.SYSTEM if data == "" else Reading().read(DefaultingType, data)


ARGUMENTS = Arguments(
    kind=PodTopologySpreadArgs,
    names={(TopologySpreadConstraint, "selector"): "labelSelector"},
    hooks={LabelSelector: _no_selector, DefaultingType: _defaulting},
)
