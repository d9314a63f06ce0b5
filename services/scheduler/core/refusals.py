"""Refusals that hold for as long as nothing changes.

Pods of one shape are refused alike, and preemption that cannot help one of them cannot help the
others: what a decision follows from is the shape (the pod's spec, and what else its profile's
plugins read of it), the snapshot, the nominations and the budgets. Where many pods are tried after
one event, the first of each shape is tried, and the rest are told the same. A pod that is nominated
itself, and one for which room can be made, are always decided anew.
"""

from __future__ import annotations

from collections.abc import Hashable

from services.kube.pod import Pod
from services.scheduler.core.decisions import Refused
from services.scheduler.core.framework import Framework
from services.scheduler.core.plugins.default_preemption import DefaultPreemption
from services.scheduler.core.plugins.dynamic_resources import DynamicResources
from services.scheduler.core.snapshot import Snapshot

_FOLLOW_FROM_THE_SHAPE = (DefaultPreemption, DynamicResources)


class Refusals:
    """The refusals of a snapshot as it stands, by profile and shape."""

    __slots__ = ("_by_shape", "_snapshot", "_version")

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._version: Hashable = None
        self._by_shape: dict[Hashable, Refused] = {}

    def known(self, framework: Framework, pod: Pod) -> Refused | None:
        """Return the pod's refusal, None where it is not known or something has changed."""
        version = self._snapshot.version
        if version != self._version:
            self._version = version
            self._by_shape.clear()
        if not self._by_shape or not self._follow_from_the_shape(framework, pod):
            return None
        return self._by_shape.get(_key(framework, pod))

    def keep(self, framework: Framework, pod: Pod, refused: Refused) -> None:
        """Keep a refusal until something changes; `known` was asked for it just before."""
        if self._follow_from_the_shape(framework, pod):
            self._by_shape[_key(framework, pod)] = refused

    def _follow_from_the_shape(self, framework: Framework, pod: Pod) -> bool:
        """Tell whether the pod's refusal follows from its shape; else it must be decided anew.

        A PostFilter plugin of another make may read more of a pod than its shape.
        """
        if pod.nominated_node_name or self._snapshot.nominations.node_of(pod.uid):
            return False
        return all(isinstance(each, _FOLLOW_FROM_THE_SHAPE) for each in framework.post_filters)


def _key(framework: Framework, pod: Pod) -> Hashable:
    return (framework.profile.scheduler_name, framework.shape_key(pod))
