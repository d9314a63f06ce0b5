"""The pods that wait to be scheduled, counted by whether pods elsewhere may let them in."""

from __future__ import annotations

from collections.abc import Sequence

from services.kube.pod import Pod


class Waiting:
    """The pending pods of our profiles, with or without a decision that waits for its answer."""

    __slots__ = ("_pods", "_refused_for_pods", "_waiting_for_pods")

    def __init__(self) -> None:
        self._pods: dict[str, bool] = {}
        self._waiting_for_pods = 0
        self._refused_for_pods: set[str] = set()

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._pods)

    @property
    def any_for_pods(self) -> bool:
        """Tell whether one of them may come to fit because of a pod that comes to a node."""
        return self._waiting_for_pods > 0

    @property
    def any_refused_for_pods(self) -> bool:
        """Tell whether one of them was refused for pods elsewhere since it came, or may be next.

        An attempt that was taken back counts too.
        """
        return self._waiting_for_pods > 0 or bool(self._refused_for_pods)

    def uids(self) -> Sequence[str]:
        """Return who they are."""
        return tuple(self._pods)

    def items(self) -> Sequence[tuple[str, bool]]:
        """Return who they are, and whether pods elsewhere may let each in, as last counted."""
        return tuple(self._pods.items())

    def put(self, pod: Pod, *, for_pods: bool) -> None:
        """Count a pod anew, `for_pods` if pods that come or change elsewhere may let it in."""
        self.count(pod.uid, for_pods=for_pods)

    def count(self, uid: str, *, for_pods: bool) -> None:
        """Count a pod anew by its uid."""
        self._waiting_for_pods += for_pods - self._pods.get(uid, False)
        self._pods[uid] = for_pods

    def drop(self, uid: str) -> None:
        """Count a pod no longer; an unknown one is passed over."""
        self._waiting_for_pods -= self._pods.pop(uid, False)
        self._refused_for_pods.discard(uid)

    def refused_for_pods(self, uid: str) -> None:
        """Note that pods elsewhere were why one of them was refused."""
        self._refused_for_pods.add(uid)
