"""The calls of the autoscaler to the cloud and to the API server, and their outcomes.

The core carries out nothing. A step is a generator that yields one call at a time and receives the
call's outcome, so that a scan reads from top to bottom as upstream's does, and what it decides next
may depend on a refusal. What a call has changed (an instance that is gone, a taint that is set)
reaches the core as any other change does; the edge applies it before it resumes the step.

Source: kubernetes/autoscaler 1.36 cloudprovider/cloud_provider.go, NodeGroup (IncreaseSize,
DecreaseTargetSize, DeleteNodes, ForceDeleteNodes); utils/taints/taints.go, AddTaints and
CleanTaints; core/scaledown/actuation/drain.go, evictPod.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from services.kube.taints import Taint

CLOUD_PROVIDER_ERROR = "cloudProviderError"
"""The code of a failure that the cloud did not give one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IncreaseSize:
    """Increase a group's target size by `delta` > 0."""

    group: str
    delta: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DecreaseTargetSize:
    """Decrease a group's target size by `delta` > 0 without deleting a node that exists."""

    group: str
    delta: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteNodes:
    """Delete instances of a group, named by provider ID, and decrease its target size by them.

    `force` asks for it even where the group falls below its minimum.
    """

    group: str
    provider_ids: tuple[str, ...]
    force: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Evict:
    """Evict a pod with a grace period, if its disruption budgets allow it."""

    namespace: str
    name: str
    grace_s: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkNode:
    """Add a taint to a node unless it has one of that key, and cordon it if `cordon`."""

    node: str
    taint: Taint
    cordon: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class UnmarkNode:
    """Remove a node's taints of that key, and uncordon it if `uncordon`."""

    node: str
    taint_key: str
    uncordon: bool = False


Call: TypeAlias = IncreaseSize | DecreaseTargetSize | DeleteNodes | Evict | MarkNode | UnmarkNode


@dataclass(frozen=True, slots=True)
class Done:
    """The call was carried out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The call was refused and has changed nothing; `gone`: there is no such object."""

    code: str = CLOUD_PROVIDER_ERROR
    message: str = ""
    gone: bool = False


Outcome: TypeAlias = Done | Refused
_T = TypeVar("_T")
Calls: TypeAlias = Generator[Call, Outcome, _T]
"""A part of a step: it yields calls, receives their outcomes, and returns a value."""


def noting(step: Calls[_T], note: Callable[[Call], object]) -> Calls[_T]:
    """Take a step, and note each call before it is made."""
    try:
        call = next(step)
        while True:
            note(call)
            call = step.send((yield call))
    except StopIteration as end:
        result: _T = end.value
        return result
