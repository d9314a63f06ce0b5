"""The pods that wait to be scheduled, and which of them an event may move.

Counted are those that pods elsewhere may let in, and those that wait for an event at all: what was
tried and given back, and what a PreEnqueue plugin holds. The queue alone knows where they stand;
this is enough to tell that nobody listens.
"""

from __future__ import annotations

from collections.abc import Sequence

from services.scheduler.core.queue_steps import ClusterEvent

_OF_PODS_ON_NODES = (ClusterEvent.ASSIGNED_POD_ADD, ClusterEvent.ASSIGNED_POD_UPDATE)


class Waiting:
    """The pending pods of our profiles, with or without a decision that waits for its answer."""

    __slots__ = ("_listening", "_listening_for_pods", "_pods", "_waiting_for_pods")

    def __init__(self) -> None:
        self._pods: dict[str, bool] = {}
        self._waiting_for_pods = 0
        self._listening: dict[str, bool] = {}
        self._listening_for_pods = 0

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._pods)

    @property
    def any_for_pods(self) -> bool:
        """Tell whether one of them may come to fit because of a pod that comes to a node."""
        return self._waiting_for_pods > 0

    def hears(self, event: ClusterEvent, *, in_flight: bool) -> bool:
        """Tell whether an event may move one of them; an attempt taken back listens, too.

        `in_flight` tells that a decision waits for its answer. Pods that come to nodes and change
        there move those alone that look beyond single nodes: no other plugin registers for such an
        event, and who was given back without a plugin's name backs off whatever happens.
        """
        if event in _OF_PODS_ON_NODES and not self._any_listens_for_pods:
            return False
        return bool(self._listening) or in_flight

    def reads(self, event: ClusterEvent) -> bool:
        """Tell whether a hint about one of them may read what an event is about.

        Pods that come to nodes and change there concern nobody but those that look beyond single
        nodes; what frees resources concerns all.
        """
        if event in _OF_PODS_ON_NODES:
            return self._any_listens_for_pods
        return bool(self._pods)

    @property
    def _any_listens_for_pods(self) -> bool:
        return self._waiting_for_pods > 0 or self._listening_for_pods > 0

    def uids(self) -> Sequence[str]:
        """Return who they are."""
        return tuple(self._pods)

    def items(self) -> Sequence[tuple[str, bool]]:
        """Return who they are, and whether pods elsewhere may let each in, as last counted."""
        return tuple(self._pods.items())

    def listening(self) -> Sequence[tuple[str, bool]]:
        """Return who of them listens, and whether for pods elsewhere."""
        return tuple(self._listening.items())

    def count(self, uid: str, *, for_pods: bool) -> None:
        """Count a pod anew, `for_pods` if pods that come or change elsewhere may let it in."""
        self._waiting_for_pods += for_pods - self._pods.get(uid, False)
        self._pods[uid] = for_pods

    def listens(self, uid: str, *, for_pods: bool) -> None:
        """Note that an event may move a pod from now on, `for_pods` if pods elsewhere are why."""
        before = self._listening.get(uid, False)
        self._listening[uid] = before or for_pods
        self._listening_for_pods += for_pods and not before

    def drop(self, uid: str) -> None:
        """Count a pod no longer; an unknown one is passed over."""
        self._waiting_for_pods -= self._pods.pop(uid, False)
        self._listening_for_pods -= self._listening.pop(uid, False)
