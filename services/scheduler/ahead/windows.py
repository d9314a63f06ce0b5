"""Rounds of later moments sent ahead with a request: when they may run, and their events.

The world sends a round ahead only if no decision can change its events. It cannot know the nodes to
which the pods are bound, so its confirmations of the bindings leave them out. With the nodes filled
in, the round is the one that the world would have sent at its time: the same answers, patches and
events, applied by the same code in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from reprieve.scheduler.v1beta1 import scheduler_pb2, scheduler_service_pb2
from services.rpc.errors import FieldError
from services.scheduler.cluster_events import ConfirmBinding, PatchPod, TimedChange
from services.scheduler.core.queueing.steps import PopId
from services.scheduler.intake import ALL_PODS, Answer, Intake, RoundInput, out_of_turn


class ForeseenRound(NamedTuple):
    """A round that follows if all pods of the one before, at `before_ns`, are bound.

    `confirmed` are the world's patches of those pods, confirmations of bindings among them; `bound`
    are the uids of the latter.
    """

    before_ns: int
    bound: Sequence[str]
    confirmed: Sequence[PatchPod | ConfirmBinding]
    brought: RoundInput

    def follows(self, outcomes: scheduler_pb2.RoundOutcomes) -> bool:
        """Return whether `outcomes` bind the pods of `bound`, in order, and no pod is pending."""
        if outcomes.more or outcomes.may_wait != scheduler_pb2.MAY_WAIT_ALL:
            return False
        if not all(outcome.HasField("bind") for outcome in outcomes.outcomes):
            return False
        return self.bound == [outcome.pop.uid for outcome in outcomes.outcomes]

    def after(self, outcomes: scheduler_pb2.RoundOutcomes) -> RoundInput:
        """Return the round's input, with the confirmations of `outcomes` before its events."""
        answers: list[Answer] = []
        nodes: dict[str, str] = {}
        for outcome in outcomes.outcomes:
            pop = outcome.pop
            answers.append(Answer(self.before_ns, PopId(pop.uid, pop.cycle), None))
            nodes[pop.uid] = outcome.bind.node_name
        confirmed = (
            change.to(nodes[change.patch.pod.uid]) if isinstance(change, ConfirmBinding) else change
            for change in self.confirmed
        )
        changes = [TimedChange(self.before_ns, change) for change in confirmed]
        brought = self.brought
        changes += brought.changes
        return RoundInput(brought.at_ns, answers, changes, brought.pods_max)


def read_window(
    intake: Intake, window: Sequence[scheduler_service_pb2.Foreseen], since_ns: int
) -> list[ForeseenRound]:
    """Return the rounds of a window that follows a round at `since_ns`.

    Raises FieldError, TimeGoesBackwardsError and LimitError; nothing is changed.
    """
    rounds = []
    for index, foreseen in enumerate(window):
        field, round_ = f"window[{index}]", foreseen.round
        if round_.answers or round_.recorded or round_.events_only:
            raise FieldError(f"{field}.round", "has events alone and takes pods")
        if round_.time_ns < since_ns:
            raise out_of_turn(f"{field}.round", round_.time_ns, since_ns, round_.time_ns)
        confirmed: list[PatchPod | ConfirmBinding] = []
        for _, change in intake.read_events(
            foreseen.confirmations, since_ns, since_ns, f"{field}.confirmations", confirms=True
        ):
            if not isinstance(change, PatchPod | ConfirmBinding):
                raise FieldError(f"{field}.confirmations", "are patches of pods")
            confirmed.append(change)
        changes = intake.read_events(
            round_.events, since_ns, round_.time_ns, f"{field}.round.events"
        )
        brought = RoundInput(round_.time_ns, (), changes, round_.max_pods or ALL_PODS)
        bound = [change.patch.pod.uid for change in confirmed if isinstance(change, ConfirmBinding)]
        rounds.append(ForeseenRound(since_ns, bound, confirmed, brought))
        since_ns = round_.time_ns
    return rounds
