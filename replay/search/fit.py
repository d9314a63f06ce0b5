"""How many more of some pods fit: the checks, a guess from free room, and what stops the next one.

A copy fits if it has a node by the end of its replay. Nobody is displaced where no further pod is
preempted, and no further pod is without a node, than without the copies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from replay.results.run.cluster import ActivePod, ClusterState
from replay.results.run.directory import RunDirectory
from replay.search.answer import Answer
from replay.whatif.assertions import Assertion, meets, parse_assertion
from replay.whatif.facts import RunFacts, read_facts
from reprieve.kube.v1beta1 import pod_pb2
from services.terminal import counted

_NAMED = 8
"""Nodes and pods that a sentence names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedPods:
    """The pods of manifests, of each of which copies are made: NAME-0, NAME-1 and so on."""

    pods: Sequence[pod_pb2.Pod]

    @property
    def names(self) -> str:
        """Return their names as text."""
        return " and ".join(pod.metadata.name for pod in self.pods)

    def keys(self, copies: int) -> Iterator[str]:
        """Yield namespace/name of each copy."""
        for pod in self.pods:
            for number in range(copies):
                yield f"{pod.metadata.namespace}/{pod.metadata.name}-{number}"

    def checks(self, *, may_preempt: bool) -> list[Assertion]:
        """Return the checks: copies have nodes and, without `may_preempt`, nobody is displaced."""
        texts = [
            f"pending{{namespace={pod.metadata.namespace}, name={pod.metadata.name}-#}} == 0"
            for pod in self.pods
        ]
        if not may_preempt:
            texts += ["preempted.change <= 0", "pending.change <= 0"]
        return [parse_assertion(text) for text in texts]

    def free(self, run: RunDirectory) -> int:
        """Return how many copies the free room at a run's end has by amounts of resources alone.

        Filters of other plugins may allow fewer, and a preemption may make room for more.
        """
        state = ClusterState()
        for round_ in run.rounds():
            for event in round_.events:
                state.take(event)
        return min(_room(state, state.active_pod(pod)) for pod in self.pods)

    def bound(self, run: RunDirectory, copies: int) -> int:
        """Return of how many copies a run has bound every pod."""
        facts = read_facts(run)
        return min(
            sum(
                key in facts.pods and bool(facts.pods[key].node)
                for key in CopiedPods(pods=[pod]).keys(copies)
            )
            for pod in self.pods
        )


def _room(state: ClusterState, pod: ActivePod) -> int:
    return sum(
        min(use.free(name) // amount for name, amount in pod.requests.items())
        for use in state.nodes.values()
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """How many copies fit.

    is_limited: the limit of the search holds. fails_at: the next number that was tried and fails;
    None: none was. nodes: copies by node. stopped: sentences about the next copy. preempted: pods
    that the copies preempt, by key.
    """

    copies: int
    is_limited: bool
    fails_at: int | None
    nodes: dict[str, int]
    stopped: tuple[str, ...]
    preempted: tuple[str, ...]

    def sentences(self, pods: CopiedPods) -> Iterator[str]:
        """Yield the answer."""
        least = "" if self.fails_at == self.copies + 1 else "At least "
        verb = "fits" if self.copies == 1 else "fit"
        text = f"{least}{self.copies:,} more of {pods.names} {verb}"
        if self.nodes:
            text += f": {listed([f'{count:,} on {node}' for node, count in self.nodes.items()])}"
        yield f"{text}."
        if self.preempted:
            number = counted(len(self.preempted), "pod")
            yield f"They preempt {number}: {listed(self.preempted)}."
        if self.is_limited:
            yield "The search ends at --max-limit."
        elif least and self.fails_at is not None:
            yield f"{self.fails_at:,} do not; numbers between the two were not tried."
        yield from self.stopped


def waiting_already(run: RunDirectory, pods: CopiedPods) -> list[str]:
    """Return the pods of a run without copies that wait for a node and have names of copies."""
    checks = pods.checks(may_preempt=True)
    return [
        key
        for key, pod in read_facts(run).pods.items()
        if pod.pending
        and any(all(meets(pod, condition) for condition in check.conditions) for check in checks)
    ]


def fit_of(answer: Answer, pods: CopiedPods) -> Fit:
    """Return what an answer about numbers of copies, of which 0 holds, means."""
    border = answer.border
    holding = border.holds if border is not None else answer.tried[-1]
    copies = holding.point[0]
    at = border.fails.shows if border is not None else holding.shows
    run = RunDirectory.open(holding.runs[at])
    facts = read_facts(run)
    on = Counter(facts.pods[key].node for key in pods.keys(copies) if key in facts.pods)
    stopped: tuple[str, ...] = ()
    if border is not None and border.is_adjacent:
        next_run = RunDirectory.open(border.fails.runs[at])
        stopped = tuple(_stopped(next_run, facts, set(pods.keys(copies + 1))))
    return Fit(
        copies=copies,
        is_limited=border is None and not answer.is_ended_early,
        fails_at=None if border is None else border.fails.point[0],
        nodes=dict(sorted(on.items(), key=lambda item: (-item[1], item[0]))),
        stopped=stopped,
        preempted=tuple(_preempted(run, set(pods.keys(copies)))),
    )


def _stopped(run: RunDirectory, before: RunFacts, copies: Collection[str]) -> Iterator[str]:
    """Yield why one copy more does not fit, by the run with it and the facts of that before."""
    facts = read_facts(run)
    messages = _refusals(run)
    waiting = [key for key in copies if key not in facts.pods or facts.pods[key].pending]
    for message in dict.fromkeys(messages[key] for key in sorted(waiting) if key in messages):
        yield f"The next one does not: {message}"
    victims = _preempted(run, copies)
    if victims:
        yield f"The next one preempts {listed(victims)}."
    others = [
        key
        for key, pod in facts.pods.items()
        if key not in copies
        and pod.pending
        and (key not in before.pods or not before.pods[key].pending)
    ]
    if others:
        verb = "has" if len(others) == 1 else "have"
        yield f"With it {listed(others)} {verb} no node."


def _refusals(run: RunDirectory) -> dict[str, str]:
    """Return of each pod the text with which it was refused last, by the scheduler or admission."""
    texts: dict[str, str] = {}
    for decision in run.decisions():
        observed = decision.observed
        key = f"{observed.object.namespace}/{observed.object.name}"
        case = observed.WhichOneof("observed")
        if case == "failed_scheduling":
            texts[key] = observed.failed_scheduling.message
        elif case == "refused":
            texts[key] = observed.refused.message
    return texts


def _preempted(run: RunDirectory, copies: Collection[str]) -> list[str]:
    """Return the pods that copies preempt in a run, in order."""
    victims: dict[str, None] = {}
    for decision in run.decisions():
        observed = decision.observed
        by = observed.preempted.by
        if observed.HasField("preempted") and f"{by.namespace}/{by.name}" in copies:
            victims[f"{observed.object.namespace}/{observed.object.name}"] = None
    return list(victims)


def listed(texts: Sequence[str]) -> str:
    """Return the first names of a list, and how many there are beyond them."""
    more = len(texts) - _NAMED
    return ", ".join(texts[:_NAMED]) + (f" and {more:,} more" if more > 0 else "")
