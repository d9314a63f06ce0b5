"""Arguments of DefaultPreemption.

Source: kubernetes v1.34 staging/src/k8s.io/kube-scheduler/config/v1/types_pluginargs.go,
pkg/scheduler/apis/config/v1/defaults.go, pkg/scheduler/apis/config/validation/
validation_pluginargs.go.
"""

from __future__ import annotations

from dataclasses import dataclass

from services.config.strict import checked, within
from services.framework.arguments import Arguments
from services.typed import DataError


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultPreemptionArgs:
    """The minimum of candidates to try: a percentage of the nodes, and an absolute number."""

    min_candidate_nodes_percentage: int = 10
    min_candidate_nodes_absolute: int = 100


@checked.register
def _(args: DefaultPreemptionArgs) -> DefaultPreemptionArgs:
    share, number = args.min_candidate_nodes_percentage, args.min_candidate_nodes_absolute
    within("minCandidateNodesPercentage", share, 0, 100, "not in valid range [0, 100]")
    if number < 0:
        raise DataError("minCandidateNodesAbsolute", "not in valid range [0, inf)")
    if share == number == 0:
        text = "cannot be zero at the same time as minCandidateNodesAbsolute"
        raise DataError("minCandidateNodesPercentage", text)
    return args


ARGUMENTS = Arguments(kind=DefaultPreemptionArgs, has_effect=False)
