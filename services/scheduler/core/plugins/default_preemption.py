"""DefaultPreemption: a pod that fits nowhere has pods of lower priority deleted for it.

Source: kubernetes v1.34 plugins/defaultpreemption/default_preemption.go, PostFilter.
"""

from __future__ import annotations

from services.kube.pod import Pod
from services.scheduler.core.plugin import PostFilterPlugin
from services.scheduler.core.preemption.outcome import CannotHelp, Nominate
from services.scheduler.core.preemption.pick import TieBreak
from services.scheduler.core.preemption.preemptor import Preemptor
from services.scheduler.core.preemption.view import FailedCycle


class DefaultPreemption(PostFilterPlugin):
    """Has a version's preemptor decide; `preemptor` is also asked for all that it finds."""

    name = "DefaultPreemption"

    def __init__(self, preemptor: Preemptor) -> None:
        self.preemptor = preemptor

    def post_filter(
        self, pod: Pod, cycle: FailedCycle, *, tie_break: TieBreak, now_ns: int
    ) -> Nominate | CannotHelp:
        """Return the node to nominate the pod to and its victims, or why none can help."""
        return self.preemptor.preempt(pod, cycle, tie_break=tie_break, now_ns=now_ns)
