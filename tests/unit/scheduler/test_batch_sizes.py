"""How large the outcomes of a batch become, known before they are written: answers have a bound."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from reprieve.scheduler.v1beta1 import scheduler_pb2
from services.framework.preemption.candidates import DecidedBy
from services.framework.preemption.outcome import Nomination
from services.framework.runtime.diagnosis import Unschedulable
from services.scheduler import session as session_module
from services.scheduler.batch import BatchEntry
from services.scheduler.core.decisions import Binding, Decision, Verdict
from services.scheduler.core.queueing.mirror import QUEUE_TRAITS
from services.scheduler.core.queueing.steps import CommitUnschedulable, Head, PopId, WhyFailed
from services.scheduler.core.session.options import RULES, SchedulerOptions
from services.scheduler.outcomes import outcome_bytes, put_outcomes
from services.scheduler.session import SchedulerSession
from tests.builders import make_pod
from tests.scheduler_rounds import told
from tests.unit.scheduler.test_session import PODS, Fifo, bound, first_round

pytestmark = pytest.mark.usefixtures("looks_ahead")
NAMED = tuple(make_pod(f"{number}-{'x' * 200}", "y" * 60).priority(5).obj() for number in range(40))
PREEMPTION = Nomination(
    node="n",
    victims=NAMED[:20],
    deletions=NAMED[:20],
    violating=NAMED[:5],
    decided_by=DecidedBy.ONLY_CANDIDATE,
    ties=("n",),
    candidates=1,
    cleared_nominations=NAMED[20:30],
    clears_last=False,
    reprieved=NAMED[30:],
)
ANSWER = scheduler_pb2.ExtenderAnswer(extender="e", call=scheduler_pb2.EXTENDER_CALL_FILTER)
ANSWER.filter.failed_nodes["n"] = "because " * 500
BINDING = Binding(node_name="n", row=0, evaluated=1, feasible=1, tied=1, total=1)


@pytest.mark.parametrize(
    ("verdict", "answers"),
    [
        (Unschedulable(message="no room", nomination=PREEMPTION), ()),
        (Unschedulable(message="no room " * 200, preemption_message="none " * 200), ()),
        (Unschedulable(message="no room"), [ANSWER]),
        (BINDING, [ANSWER, ANSWER]),
        (BINDING, ()),
    ],
    ids=["preemption", "messages", "refusal with answers", "binding with answers", "binding"],
)
def test_a_size_is_never_less_than_what_is_written(
    verdict: Verdict, answers: Sequence[scheduler_pb2.ExtenderAnswer]
) -> None:
    """Names, messages and extenders' answers count; where there are none, it is little more."""
    entries, size = [], 0
    for cycle in range(1, 11):
        pop = PopId(f"uid-{cycle}", cycle)
        steps = (CommitUnschedulable(pop, WhyFailed()),)
        decision = Decision(head=Head(pop, 1, 1, 1), pod=None, verdict=verdict, steps=steps)
        entries.append(BatchEntry(decision, 1, (cycle, 0), 10**6, answers))
        size += outcome_bytes(decision, answers)
    out = scheduler_pb2.RoundOutcomes()
    assert put_outcomes(entries, out) == 10
    assert out.ByteSize() <= size


def test_a_batch_ends_where_its_outcomes_have_become_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer says that there are more; the next ones decide the others as one would have."""
    monkeypatch.setattr(session_module, "_ANSWER_BYTES", 1)
    queue: Any = Fifo()
    options = SchedulerOptions(rules=RULES["v1.34"], queue=QUEUE_TRAITS["v1.34"])
    session = SchedulerSession(options, queue, scheduler_pb2.SchedulerConfig())

    async def all_messages() -> list[scheduler_pb2.RoundOutcomes]:
        answers = [await told(session, first_round())]
        while answers[-1].more:
            answers.append(await told(session, scheduler_pb2.Round(time_ns=1)))
        return answers

    answers = asyncio.run(all_messages())
    assert [[uid for uid, _ in bound(answer)] for answer in answers] == [
        [f"uid-default-p{index}"] for index in range(PODS)
    ]
