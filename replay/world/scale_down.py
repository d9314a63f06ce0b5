"""Which pods of a ReplicaSet go first when it shrinks.

Source: kubernetes v1.34 pkg/controller/controller_utils.go, ActivePodsWithRanks.Less,
logarithmicRankDiff; pkg/controller/replicaset/replica_set.go, getPodsRankedByRelatedPodsOnSameNode.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from replay.world.conditions import ready_since_ns
from replay.world.pod_record import PodRecord
from services.rpc.kube_fields import time_ns

DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
_PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}
_INT32_MAX = 2**31 - 1


def first_to_go(
    pods: Sequence[PodRecord], related: Iterable[PodRecord], now_ns: int
) -> list[PodRecord]:
    """Return active pods by who goes first.

    Unassigned; pending; not ready; of a lower deletion cost; with more of the active `related`
    pods (those of the same Deployment) on its node; ready for a shorter time; created later; the
    UID. The two times count by their binary logarithm (so that age among equals is no fate), and
    of two pods whose times to readiness are alike but not equal upstream compares only the UIDs.
    """
    crowd = Counter(
        pod.node_name for pod in related if not pod.is_terminal and not pod.is_terminating
    )

    def rank(pod: PodRecord) -> tuple[object, ...]:
        is_ready = pod.is_ready
        return (
            bool(pod.node_name),
            _PHASES.get(pod.message.status.phase, 0),
            is_ready,
            deletion_cost(pod),
            -crowd[pod.node_name],
            _magnitude(now_ns - ready_since_ns(pod.message.status)) if is_ready else 0,
            _magnitude(now_ns - time_ns(pod.message.metadata.creation_timestamp)),
            pod.uid,
        )

    return sorted(pods, key=rank)


def deletion_cost(pod: PodRecord) -> int:
    """Return the pod's deletion cost; one that is no int32 in plain form counts as 0."""
    text = pod.message.metadata.annotations.get(DELETION_COST, "0")
    digits = text.removeprefix("-")
    plain = digits.isascii() and digits.isdigit() and (digits == "0" or digits[0] != "0")
    if not plain or text == "-0" or not -_INT32_MAX - 1 <= int(text) <= _INT32_MAX:
        return 0
    return int(text)


def _magnitude(age_ns: int) -> int:
    """Return the whole binary logarithm of an age, -1 for none."""
    return age_ns.bit_length() - 1 if age_ns > 0 else -1
