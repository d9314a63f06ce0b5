"""DefaultPreemption: the PostFilter plugin that calls the preemptor.

Source: kubernetes v1.34 pkg/scheduler/framework/plugins/defaultpreemption/default_preemption.go.
"""

from __future__ import annotations

from collections.abc import Iterable

from services.framework.plugin import PostFilterPlugin, PreEnqueuePlugin
from services.framework.preemption.outcome import CannotHelp, FailedCycle, Nominate
from services.framework.preemption.pick import TieBreak
from services.framework.preemption.preemptor import Preemptor
from services.framework.status import Status
from services.kube.pod import Pod


class DefaultPreemption(PreEnqueuePlugin, PostFilterPlugin):
    """Calls one version's preemptor, which also evaluates a pod node by node for `explain`."""

    name = "DefaultPreemption"

    def __init__(self, preemptor: Preemptor) -> None:
        self.preemptor = preemptor

    def pre_enqueue(self, pod: Pod) -> Status | None:  # noqa: ARG002 - no preemption runs meanwhile
        """Let the pod in: a preemption is decided in the cycle, and not beside it."""
        return None

    def post_filter(
        self, pod: Pod, cycle: FailedCycle, *, tie_break: TieBreak, now_ns: int
    ) -> Nominate | CannotHelp:
        """Return the node to nominate the pod to and its victims, or why none can help."""
        return self.preemptor.preempt(pod, cycle, tie_break=tie_break, now_ns=now_ns)


def preemptor_among(plugins: Iterable[PostFilterPlugin]) -> Preemptor | None:
    """Return the preemptor of a profile's PostFilter, None where it has none."""
    return next((each.preemptor for each in plugins if isinstance(each, DefaultPreemption)), None)
