"""A session's extenders; their responses are recorded, so that a replay need not call them.

A cycle's responses are in the order of its calls. A replayed cycle gets them in that order, and the
last one again if it makes further calls, as an evaluation of all verdicts does. A call without a
recorded response lets every node pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from reprieve.scheduler.v1beta1 import scheduler_pb2
from services.framework.preemption.candidates import Candidate
from services.framework.preemption.outcome import ExtenderError
from services.kube.node import Node
from services.kube.pod import Pod
from services.scheduler.config.extenders import ExtenderConfig
from services.scheduler.core.cycle.extenders import (
    ExtenderTerms,
    FilterAnswer,
    NodeVictims,
    as_int64,
)
from services.scheduler.extenders.connect import ConnectedExtender, terms_of
from services.scheduler.extenders.grpc_extender import ExtenderObjects, filter_answer, node_victims

FILTER = scheduler_pb2.EXTENDER_CALL_FILTER
PRIORITIZE = scheduler_pb2.EXTENDER_CALL_PRIORITIZE
PROCESS_PREEMPTION = scheduler_pb2.EXTENDER_CALL_PROCESS_PREEMPTION
BIND = scheduler_pb2.EXTENDER_CALL_BIND

Answer = scheduler_pb2.ExtenderAnswer


class SessionExtenders:
    """The extenders of a session, `connected` in the order of their configurations.

    `connect` returns those of `configs`, which are sent `objects`; without it their recorded
    responses are replayed. `answers` are the responses of the cycle that runs.
    """

    def __init__(
        self,
        configs: Sequence[ExtenderConfig] = (),
        connect: Callable[[ExtenderObjects], Iterable[ConnectedExtender]] | None = None,
    ) -> None:
        self.objects = ExtenderObjects()
        self.answers = ExtenderAnswers()
        self.connected: tuple[ConnectedExtender, ...]
        if connect is None:
            self.connected = tuple(
                ReplayedExtender(terms_of(config), self.answers) for config in configs
            )
        else:
            self.connected = tuple(
                RecordingExtender(extender, self.answers) for extender in connect(self.objects)
            )

    def keep_input(self, round_: scheduler_pb2.Round) -> None:
        """Keep what a round brings for extenders: nodes to send, and recorded responses."""
        if self.connected:
            self.objects.take_nodes(round_)
            self.answers.load(round_)

    def close(self) -> None:
        """Give up what the extenders hold."""
        for extender in self.connected:
            extender.close()


class ExtenderAnswers:
    """A session's extender responses: those of the current cycle, and recorded ones."""

    def __init__(self) -> None:
        self._new: list[Answer] = []
        self._recorded: dict[tuple[str, int], Sequence[Answer]] = {}
        self._replayed: dict[tuple[str, int], int] = {}
        self._current: Sequence[Answer] = ()
        self._instant_ns: int | None = None

    def load(self, round_: scheduler_pb2.Round) -> None:
        """Load the recorded responses that a round brings; those of earlier instants are dropped.

        A round of events alone is a part of the one that follows, whatever the time of either.
        """
        if self._instant_ns not in {None, round_.time_ns}:
            self._recorded.clear()
        self._instant_ns = None if round_.events_only else round_.time_ns
        for attempt in round_.recorded:
            self._recorded[attempt.pod.uid, attempt.attempt] = attempt.answers

    def begin(self, uid: str, attempt_number: int) -> None:
        """Begin a pod's cycle."""
        self._new = []
        self._replayed = {}
        self._current = self._recorded.get((uid, attempt_number), ())

    def record(self, answer: Answer) -> None:
        """Record a response of the cycle."""
        self._new.append(answer)

    def recorded(self) -> Sequence[Answer]:
        """Return the responses recorded since the cycle began."""
        return self._new

    def next(self, extender: str, call: scheduler_pb2.ExtenderCall.ValueType) -> Answer | None:
        """Return the response to an extender's next call in the cycle, None without one."""
        kept = [
            answer for answer in self._current if (answer.extender, answer.call) == (extender, call)
        ]
        if not kept:
            return None
        place = self._replayed.get((extender, call), 0)
        self._replayed[extender, call] = place + 1
        return kept[min(place, len(kept) - 1)]


class RecordingExtender:
    """An extender whose responses are recorded in those of its session."""

    def __init__(self, extender: ConnectedExtender, answers: ExtenderAnswers) -> None:
        self._extender = extender
        self._answers = answers

    @property
    def terms(self) -> ExtenderTerms:
        """Return the configuration of the extender."""
        return self._extender.terms

    def close(self) -> None:
        """Give the connection up, if there is one."""
        self._extender.close()

    def filter(self, pod: Pod, nodes: Sequence[Node]) -> FilterAnswer | ExtenderError:
        """Call Filter."""
        response = self._extender.filter(pod, nodes)
        answer = self._record(FILTER, response)
        if not isinstance(response, ExtenderError):
            answer.filter.node_names.extend(response.passed)
            answer.filter.failed_nodes.update(response.failed)
            answer.filter.failed_and_unresolvable_nodes.update(response.unresolvable)
            answer.filter.SetInParent()
        return response

    def prioritize(
        self, pod: Pod, nodes: Sequence[Node]
    ) -> Sequence[tuple[str, int]] | ExtenderError:
        """Call Prioritize."""
        response = self._extender.prioritize(pod, nodes)
        answer = self._record(PRIORITIZE, response)
        if not isinstance(response, ExtenderError):
            answer.scores.SetInParent()
            for name, score in response:
                answer.scores.scores.add(node_name=name, score=as_int64(score))
        return response

    def process_preemption(
        self, pod: Pod, candidates: Sequence[Candidate]
    ) -> Sequence[NodeVictims] | ExtenderError:
        """Call ProcessPreemption."""
        response = self._extender.process_preemption(pod, candidates)
        answer = self._record(PROCESS_PREEMPTION, response)
        if not isinstance(response, ExtenderError):
            answer.candidates.SetInParent()
            for victims in response:
                candidate = answer.candidates.candidates.add(
                    node_name=victims.node_name, budget_violations=victims.budget_violations
                )
                for uid in victims.pod_uids:
                    candidate.victims.add(uid=uid)
        return response

    def bind(self, pod: Pod, node_name: str) -> ExtenderError | None:
        """Call Bind."""
        error = self._extender.bind(pod, node_name)
        answer = self._record(BIND, error)
        if error is None:
            answer.bound.SetInParent()
        return error

    def _record(self, call: scheduler_pb2.ExtenderCall.ValueType, response: object) -> Answer:
        """Record a response and return it, to be completed where it is not an error."""
        answer = Answer(extender=self.terms.name, call=call)
        if isinstance(response, ExtenderError):
            answer.error = response.message
        self._answers.record(answer)
        return answer


class ReplayedExtender:
    """An extender that is not called: its responses are those recorded of the cycle.

    It has no connection, and its TLS settings are not looked at.
    """

    def __init__(self, terms: ExtenderTerms, answers: ExtenderAnswers) -> None:
        self.terms = terms
        self._answers = answers

    def close(self) -> None:
        """Do nothing."""

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
        return [(host.node_name, host.score) for host in answer.scores.scores]

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
                    node_name=candidate.node,
                    pod_uids=tuple(victim.uid for victim in candidate.victims),
                    budget_violations=candidate.violations,
                )
                for candidate in candidates
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
