"""Pods that controllers could not create: which are still missing, and when to retry.

A refusal ends a controller's sync with an error. Upstream then puts the object back into its work
queue after a delay that doubles from retry to retry; most of these retries fail for the same
reason. Here the times of the retries are computed, and only the first one after a change that may
admit a pod is made: the outcome is the same, without the retries that cannot succeed. Syncs for
another reason do not shift the series, as they would upstream.

Source: client-go v0.34 util/workqueue/default_rate_limiters.go, DefaultTypedControllerRateLimiter
(5 ms to 1000 s); kubernetes v1.34 pkg/controller/job/job_controller.go, DefaultJobApiBackOff and
MaxJobApiBackOff (1 s to 60 s); pkg/controller/controller_utils.go, SlowStartInitialBatchSize (no
other pod is created after a refused one).
"""

from __future__ import annotations

from dataclasses import dataclass

from services.kube.time import SECOND_NS

_FIRST_NS, _MAX_NS = SECOND_NS // 200, 1000 * SECOND_NS
_JOB_FIRST_NS, _JOB_MAX_NS = SECOND_NS, 60 * SECOND_NS


@dataclass(slots=True, kw_only=True)
class _Refusal:
    """Missing pods of one owner, or of one ordinal or node of it, since `since_ns`."""

    kind: str
    since_ns: int
    pods: int


class Refusals:
    """The refused pods of all owners, by the owner's UID and the place of a pod.

    The place is what a pod is created for, such as an ordinal or a node; "" is for all pods of the
    owner.
    """

    _refused: dict[tuple[str, str], _Refusal]

    def __init__(self) -> None:
        self._refused = {}

    def add(self, now_ns: int, kind: str, uid: str, place: str, missing: int) -> int:
        """Note that an owner lacks so many pods; return how many of them are new refusals."""
        known = self._refused.get((uid, place))
        if known is None:
            self._refused[uid, place] = _Refusal(kind=kind, since_ns=now_ns, pods=missing)
            return missing
        before, known.pods = known.pods, missing
        return max(0, missing - before)

    def admitted(self, uid: str, place: str) -> None:
        """Note that a pod was created."""
        for key in ((uid, ""), (uid, place)):
            known = self._refused.get(key)
            if known is not None:
                known.pods -= 1
                if known.pods <= 0:
                    del self._refused[key]
                return

    def forget(self, uid: str) -> None:
        """Forget a deleted owner."""
        for key in [key for key in self._refused if key[0] == uid]:
            del self._refused[key]

    def retries_ns(self, now_ns: int) -> dict[str, int]:
        """Return when each owner with missing pods retries after `now_ns`, by UID."""
        retries: dict[str, int] = {}
        for (uid, _), refused in self._refused.items():
            due_ns = next_retry_ns(refused.kind, refused.since_ns, now_ns)
            retries[uid] = min(due_ns, retries.get(uid, due_ns))
        return retries


def next_retry_ns(kind: str, since_ns: int, now_ns: int) -> int:
    """Return the first retry after `now_ns` of an object that was first refused at `since_ns`."""
    is_job = kind == "Job"
    wait_ns = _JOB_FIRST_NS if is_job else _FIRST_NS
    wait_max_ns = _JOB_MAX_NS if is_job else _MAX_NS
    due_ns = since_ns + wait_ns
    while due_ns <= now_ns and wait_ns < wait_max_ns:
        wait_ns = min(2 * wait_ns, wait_max_ns)
        due_ns += wait_ns
    if due_ns <= now_ns:
        due_ns += ((now_ns - due_ns) // wait_ns + 1) * wait_ns
    return due_ns
