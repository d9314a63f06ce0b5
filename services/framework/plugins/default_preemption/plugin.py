"""DefaultPreemption: the PostFilter plugin that calls the preemptor.

Source: kubernetes v1.34 pkg/scheduler/framework/plugins/defaultpreemption/default_preemption.go.
"""

from __future__ import annotations

from services.framework.plugin import PostFilterPlugin, PreEnqueuePlugin
from services.framework.plugins.default_preemption.arguments import ARGUMENTS
from services.framework.preemption.candidates import TieBreak
from services.framework.preemption.preemptor import CannotHelp, FailedCycle, Nomination, Preemptor
from services.framework.status import Status
from services.kube.pod import Pod


class DefaultPreemption(PreEnqueuePlugin, PostFilterPlugin):
    """Calls one version's preemptor, which also evaluates a pod node by node for `explain`."""

    name = "DefaultPreemption"
    arguments = ARGUMENTS
    follows_from_class = True

    def __init__(self, preemptor: Preemptor) -> None:
        self.preemptor = self._preemptor = preemptor

    def pre_enqueue(self, pod: Pod) -> Status | None:  # noqa: ARG002 - no preemption runs meanwhile
        """Let the pod in: a preemption is decided in the cycle, and not beside it."""
        return None

    def post_filter(
        self, pod: Pod, cycle: FailedCycle, *, tie_break: TieBreak, now_ns: int
    ) -> Nomination | CannotHelp:
        """Return the node to nominate the pod to and its victims, or why none can help."""
        return self._preemptor.preempt(pod, cycle, tie_break=tie_break, now_ns=now_ns)
