"""The active and the ready pods of each controller, so that no controller has to count them."""

from __future__ import annotations

from typing import TypeVar

from replay.world.api.pod_record import PodRecord

_Indexed = TypeVar("_Indexed")


class OwnedPods:
    """Pods by the UID of their controller and their own.

    `active` holds those that have neither ended nor are terminating, `ready_ns` since when each
    ready one of them has been so, ns since the Unix epoch.
    """

    active: dict[str, dict[str, PodRecord]]
    ready_ns: dict[str, dict[str, int]]

    def __init__(self) -> None:
        self.active = {}
        self.ready_ns = {}

    def count(self, pod: PodRecord) -> None:
        """Count a pod in its current state, in place of its previous one."""
        owner_uid, ready_ns = pod.owner_uid, pod.ready_ns
        if not pod.is_active:
            self.drop(owner_uid, pod.uid)
            return
        self.active.setdefault(owner_uid, {})[pod.uid] = pod
        if ready_ns is None:
            drop(self.ready_ns, owner_uid, pod.uid)
        else:
            self.ready_ns.setdefault(owner_uid, {})[pod.uid] = ready_ns

    def drop(self, owner_uid: str, uid: str) -> None:
        """Stop counting a pod; one that is not counted is accepted."""
        drop(self.active, owner_uid, uid)
        drop(self.ready_ns, owner_uid, uid)


def drop(index: dict[str, dict[str, _Indexed]], key: str, uid: str) -> None:
    """Remove a pod from an index, if it is there, and the entry of a key without pods."""
    pods = index.get(key)
    if pods is not None:
        pods.pop(uid, None)
        if not pods:
            del index[key]
