"""Finds the changes between two versions of a pod that affect scheduling.

Source: kubernetes v1.34 pkg/scheduler/framework/events.go, PodSchedulingPropertiesChange.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Protocol

from services.kube.pod import Pod, PodSpec
from services.kube.requests import is_resize_reported, pod_requests, requests_in_force, scaled_down


class PodChange(Enum):
    """A change of a pod, by upstream's name of its action; upstream reports them in this order."""

    LABEL = "UpdatePodLabel"
    SCALE_DOWN = "UpdatePodScaleDown"
    SCHEDULING_GATES_ELIMINATED = "UpdatePodSchedulingGatesEliminated"
    TOLERATION = "UpdatePodToleration"
    GENERATED_RESOURCE_CLAIM = "UpdatePodGeneratedResourceClaim"


class PodVersion(Protocol):
    """The fields of a pod that are compared; if `spec` is None, only the labels are."""

    @property
    def labels(self) -> Mapping[str, str]: ...  # noqa: D102 - as in Pod
    @property
    def spec(self) -> PodSpec | None: ...  # noqa: D102 - as in Pod
    @property
    def claim_names(self) -> tuple[tuple[str, str | None], ...]: ...  # noqa: D102 - as in Pod


def pod_changes(old: PodVersion, new: PodVersion) -> tuple[PodChange, ...]:
    """Return the changes in upstream's order; empty if upstream distinguishes none of them.

    Tolerations are compared by their number, as upstream does, because they can only be added.
    """
    changes: list[PodChange] = []
    if old.labels is not new.labels and dict(old.labels) != dict(new.labels):
        changes.append(PodChange.LABEL)
    before, after = old.spec, new.spec
    if _is_scaled_down(old, new):
        changes.append(PodChange.SCALE_DOWN)
    if before is not None and after is not None and before is not after:
        if before.scheduling_gates and not after.scheduling_gates:
            changes.append(PodChange.SCHEDULING_GATES_ELIMINATED)
        if len(before.tolerations) != len(after.tolerations):
            changes.append(PodChange.TOLERATION)
    if old.claim_names != new.claim_names:
        changes.append(PodChange.GENERATED_RESOURCE_CLAIM)
    return tuple(changes)


def _is_scaled_down(old: PodVersion, new: PodVersion) -> bool:
    """Return whether the requests in force have shrunk; of a pending pod the spec has them all."""
    before, after = old.spec, new.spec
    if before is None or after is None:
        return False
    if isinstance(old, Pod) and isinstance(new, Pod):
        is_same = before is after and not is_resize_reported(old, new)
        return not is_same and scaled_down(requests_in_force(old), requests_in_force(new))
    return before is not after and scaled_down(pod_requests(before), pod_requests(after))
