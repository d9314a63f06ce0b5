"""Controllers whose pods kubelets reject: when each makes the next ones.

A rejected pod has failed, so that its ReplicaSet, ReplicationController or StatefulSet makes
another one. Where the scheduler binds that one to a node that does not fit either, upstream's
controllers go on without any delay, for as long as the scheduler does: hundreds of pods a minute,
as fast as the API servers are (kubernetes#72593, kubernetes#130411, which proposed a backoff and
was not merged). In virtual time that is an instant without an end. So here the first replacements
come at once, and each further batch of which a pod is rejected waits for as long as the work
queue's rate limiter would make a failed sync wait: 5 ms, doubled up to 1000 s. A pod that is
admitted by its kubelet ends the series. Jobs and DaemonSets have a backoff of their own.

Source: client-go v0.34 util/workqueue/default_rate_limiters.go, DefaultTypedControllerRateLimiter;
kubernetes v1.34 pkg/controller/replicaset/replica_set.go, manageReplicas (no delay).
"""

from __future__ import annotations

from dataclasses import dataclass

from services.kube.time import SECOND_NS

KINDS = frozenset({"ReplicaSet", "ReplicationController", "StatefulSet"})
_FIRST_NS, _MAX_NS = SECOND_NS // 200, 1000 * SECOND_NS


@dataclass(slots=True, kw_only=True)
class _Rejected:
    """Batches in a row with a rejected pod, and when the next one may be created, ns.

    `has_new`: a pod was created since the last rejection that counted.
    """

    batches: int = 0
    due_ns: int = 0
    has_new: bool = True


class Rejections:
    """The owners whose last pods were rejected, by UID."""

    _rejected: dict[str, _Rejected]

    def __init__(self) -> None:
        self._rejected = {}

    def rejected(self, now_ns: int, uid: str) -> None:
        """Note that a kubelet rejects a pod of an owner."""
        owner = self._rejected.setdefault(uid, _Rejected())
        if owner.has_new:
            owner.due_ns = now_ns + wait_ns(owner.batches)
            owner.batches += 1
            owner.has_new = False

    def admitted(self, uid: str) -> None:
        """Note that a kubelet admits a pod of an owner."""
        if self._rejected:
            self._rejected.pop(uid, None)

    def created(self, uid: str) -> None:
        """Note that an owner created a pod."""
        owner = self._rejected.get(uid)
        if owner is not None:
            owner.has_new = True

    def due_ns(self, uid: str) -> int:
        """Return from when on an owner may create pods, ns; 0: at any time."""
        owner = self._rejected.get(uid)
        return 0 if owner is None else owner.due_ns

    def forget(self, uid: str) -> None:
        """Forget a deleted owner."""
        self._rejected.pop(uid, None)


def wait_ns(batches: int) -> int:
    """Return the backoff after that many rejected batches of replacements, ns."""
    return min(_FIRST_NS << min(batches - 1, 32), _MAX_NS) if batches > 0 else 0
