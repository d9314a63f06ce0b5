"""Whether a kubelet starts containers again that have exited, and how long it waits before.

Source: kubernetes v1.34 pkg/kubelet/container/helpers.go, ShouldContainerBeRestarted;
kuberuntime/kuberuntime_manager.go, doBackOff; kubelet.go, MaxContainerBackOff, backOffPeriod. The
first restart is at once. A run of more than ten minutes, after which upstream forgets the backoff,
forgets it here, too.
"""

from __future__ import annotations

from replay.world.models import SECOND_NS

BACKOFF_NS = 10 * SECOND_NS
BACKOFF_MAX_NS = 300 * SECOND_NS
FORGET_NS = 2 * BACKOFF_MAX_NS


def runs_again(restart_policy: str, exit_code: int) -> bool:
    """Tell whether containers that exited run again; an empty policy is Always."""
    if restart_policy == "Never":
        return False
    return restart_policy != "OnFailure" or exit_code != 0


def crash_backoff_ns(restarts: int) -> int:
    """Return the wait before the next restart after so many in a row, ns."""
    if restarts < 1:
        return 0
    return min(BACKOFF_NS << min(restarts - 1, 16), BACKOFF_MAX_NS)
