"""The objects of an event as hints read them.

A hint gets None where the event does not carry objects of the kind that it reads; it then
answers as if upstream's had failed: queue.
"""

from __future__ import annotations

from typing import TypeVar

from services.kube.pod import Pod, PodSpec
from services.queue.core.happening import Happening
from services.queue.core.pod import QueuedPod

AnyPod = Pod | QueuedPod
"""An assigned pod, or the waiting one's own two versions."""

_EMPTY = PodSpec()
_T = TypeVar("_T")


def objects(happening: Happening, kind: type[_T]) -> tuple[_T | None, _T | None] | None:
    """Return the objects before and after, one of them at least; None where neither is there."""
    old = happening.old if isinstance(happening.old, kind) else None
    new = happening.new if isinstance(happening.new, kind) else None
    return None if old is None and new is None else (old, new)


def changed(happening: Happening, kind: type[_T]) -> tuple[_T | None, _T] | None:
    """Return the objects before and after; None where nothing is there any more."""
    known = objects(happening, kind)
    return None if known is None or known[1] is None else (known[0], known[1])


def pods(happening: Happening) -> tuple[AnyPod | None, AnyPod | None] | None:
    """Return the pod before and after; None where neither is there."""
    old = happening.old if isinstance(happening.old, (Pod, QueuedPod)) else None
    new = happening.new if isinstance(happening.new, (Pod, QueuedPod)) else None
    return None if old is None and new is None else (old, new)


def spec_of(pod: AnyPod) -> PodSpec:
    """Return what the pod asks for; an empty spec where the queue was not told."""
    return pod.spec or _EMPTY


def left_a_node(pod: AnyPod) -> bool:
    """Tell whether a pod that has gone took room somewhere, or was about to."""
    return bool(pod.node_name or pod.nominated_node_name)
