"""What extenders answered, noted to be told again: a run goes the same way without them.

A cycle's answers stand in the order of its calls. A cycle that is told again gets them in that
order, and the last one again if it asks once more, as whoever looks at every verdict does; one of
which nothing was noted gets none, and everything passes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from reprieve.scheduler.v1beta1 import scheduler_pb2
from services.kube.node import Node
from services.kube.pod import Pod
from services.scheduler.core.cycle.extenders import (
    ExtenderTerms,
    FilterAnswer,
    NodeVictims,
    as_int64,
)
from services.scheduler.core.preemption.preemptor import ExtenderError
from services.scheduler.core.preemption.victims import Candidate
from services.scheduler.extenders.connect import Connected
from services.scheduler.extenders.grpc_extender import filter_answer, node_victims

FILTER = scheduler_pb2.EXTENDER_CALL_FILTER
PRIORITIZE = scheduler_pb2.EXTENDER_CALL_PRIORITIZE
PROCESS_PREEMPTION = scheduler_pb2.EXTENDER_CALL_PROCESS_PREEMPTION
BIND = scheduler_pb2.EXTENDER_CALL_BIND

Answer = scheduler_pb2.ExtenderAnswer


class Answers:
    """A session's answers: those of the cycle under way, and those that were noted before."""

    def __init__(self) -> None:
        self._noted: list[Answer] = []
        self._known: dict[tuple[str, int], Sequence[Answer]] = {}
        self._told: dict[tuple[str, int], int] = {}
        self._here: Sequence[Answer] = ()

    def know(self, attempts: Iterable[scheduler_pb2.RecordedAttempt], *, anew: bool) -> None:
        """Keep what was answered in other cycles; `anew` forgets what was kept before."""
        if anew:
            self._known.clear()
        self._known.update(((each.pod.uid, each.attempt), each.answers) for each in attempts)

    def begin(self, uid: str, attempt: int) -> None:
        """Begin a pod's cycle."""
        self._noted = []
        self._told = {}
        self._here = self._known.get((uid, attempt), ())

    def note(self, answer: Answer) -> None:
        """Note an answer of the cycle."""
        self._noted.append(answer)

    def taken(self) -> Sequence[Answer]:
        """Return what has been noted since the cycle began."""
        return self._noted

    def next(self, extender: str, call: scheduler_pb2.ExtenderCall.ValueType) -> Answer | None:
        """Return the answer to an extender's next call in the cycle, None where none is kept."""
        kept = [each for each in self._here if (each.extender, each.call) == (extender, call)]
        if not kept:
            return None
        place = self._told.get((extender, call), 0)
        self._told[extender, call] = place + 1
        return kept[min(place, len(kept) - 1)]


class _Answering:
    """An extender and the answers of its session."""

    def __init__(self, extender: Connected, answers: Answers) -> None:
        self._extender = extender
        self._answers = answers

    @property
    def terms(self) -> ExtenderTerms:
        """Return what is agreed with it."""
        return self._extender.terms

    def close(self) -> None:
        """Give the connection up, if there is one."""
        self._extender.close()


class Noting(_Answering):
    """An extender whose answers are noted."""

    def filter(self, pod: Pod, nodes: Sequence[Node]) -> FilterAnswer | ExtenderError:
        """Ask which of `nodes` suit the pod."""
        said = self._extender.filter(pod, nodes)
        answer = self._noted(FILTER, said)
        if not isinstance(said, ExtenderError):
            answer.filter.node_names.extend(said.passed)
            answer.filter.failed_nodes.update(said.failed)
            answer.filter.failed_and_unresolvable_nodes.update(said.unresolvable)
            answer.filter.SetInParent()
        return said

    def prioritize(
        self, pod: Pod, nodes: Sequence[Node]
    ) -> Sequence[tuple[str, int]] | ExtenderError:
        """Ask for scores."""
        said = self._extender.prioritize(pod, nodes)
        answer = self._noted(PRIORITIZE, said)
        if not isinstance(said, ExtenderError):
            answer.scores.SetInParent()
            for name, score in said:
                answer.scores.scores.add(node_name=name, score=as_int64(score))
        return said

    def process_preemption(
        self, pod: Pod, candidates: Sequence[Candidate]
    ) -> Sequence[NodeVictims] | ExtenderError:
        """Ask which candidates are left."""
        said = self._extender.process_preemption(pod, candidates)
        answer = self._noted(PROCESS_PREEMPTION, said)
        if not isinstance(said, ExtenderError):
            answer.candidates.SetInParent()
            for each in said:
                left = answer.candidates.candidates.add(
                    node_name=each.node_name, budget_violations=each.budget_violations
                )
                for uid in each.pod_uids:
                    left.victims.add(uid=uid)
        return said

    def bind(self, pod: Pod, node_name: str) -> ExtenderError | None:
        """Have the pod bound."""
        error = self._extender.bind(pod, node_name)
        answer = self._noted(BIND, error)
        if error is None:
            answer.bound.SetInParent()
        return error

    def _noted(self, call: scheduler_pb2.ExtenderCall.ValueType, said: object) -> Answer:
        """Return the note of an answer, to be filled in where it is no error."""
        answer = Answer(extender=self.terms.name, call=call)
        if isinstance(said, ExtenderError):
            answer.error = said.message
        self._answers.note(answer)
        return answer


class Recorded(_Answering):
    """An extender that is not asked: it answers what is known of the cycle."""

    def filter(self, pod: Pod, nodes: Sequence[Node]) -> FilterAnswer | ExtenderError:  # noqa: ARG002 - it was asked before
        """Return which of `nodes` suited the pod."""
        answer = self._answers.next(self.terms.name, FILTER)
        if answer is None:
            return FilterAnswer(passed=tuple(node.name for node in nodes))
        if answer.HasField("error"):
            return ExtenderError(message=answer.error)
        return filter_answer(answer.filter)

    def prioritize(
        self,
        pod: Pod,  # noqa: ARG002 - it was asked before
        nodes: Sequence[Node],  # noqa: ARG002 - as above
    ) -> Sequence[tuple[str, int]] | ExtenderError:
        """Return the scores."""
        answer = self._answers.next(self.terms.name, PRIORITIZE)
        if answer is None:
            return ()
        if answer.HasField("error"):
            return ExtenderError(message=answer.error)
        return [(each.node_name, each.score) for each in answer.scores.scores]

    def process_preemption(
        self,
        pod: Pod,  # noqa: ARG002 - it was asked before
        candidates: Sequence[Candidate],
    ) -> Sequence[NodeVictims] | ExtenderError:
        """Return the candidates that were left."""
        answer = self._answers.next(self.terms.name, PROCESS_PREEMPTION)
        if answer is None:
            return [
                NodeVictims(
                    node_name=each.node,
                    pod_uids=tuple(victim.uid for victim in each.victims),
                    budget_violations=each.violations,
                )
                for each in candidates
            ]
        if answer.HasField("error"):
            return ExtenderError(message=answer.error)
        return node_victims(answer.candidates.candidates)

    def bind(self, pod: Pod, node_name: str) -> ExtenderError | None:  # noqa: ARG002 - it was asked before
        """Return how binding ended."""
        answer = self._answers.next(self.terms.name, BIND)
        if answer is None or not answer.HasField("error"):
            return None
        return ExtenderError(message=answer.error)
