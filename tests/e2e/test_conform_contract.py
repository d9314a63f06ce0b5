"""`reprieve conform --contract`: what our services reach, what a small one does, what is found."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest
from google.protobuf.empty_pb2 import Empty

from replay.backends.processes import EmbeddedServices
from replay.cli.commands.conform import CONTRACTS
from replay.conform.contract.checks import FAILED, NOT_SERVED, PASSED, ContractReport, run_checks
from reprieve.autoscaler.v1beta1 import autoscaler_service_pb2 as autoscaler_pb
from reprieve.queue.v1beta1 import queue_pb2
from reprieve.scheduler.v1beta1 import scheduler_service_pb2 as rpc
from reprieve.scheduler.v1beta1.scheduler_service_pb2_grpc import SchedulerServiceServicer
from services.rpc.client import channel
from tests.conformance_mutants.scheduler_service import SmallSchedulerService, serving_scheduler
from tests.e2e.commands import REFUSED, SERVICE, reprieve

pytestmark = pytest.mark.e2e
DIFFERS = 1


@pytest.mark.parametrize("service", CONTRACTS)
def test_our_services_reach_the_highest_level(
    services: EmbeddedServices, tmp_path: Path, service: str
) -> None:
    """Every check passes; the table has a row for each, and a last line."""
    address = services.addresses[service]
    shown = reprieve(tmp_path, "conform", "--contract", service, address, "--level", "5").stdout
    header, *rows, blank, last = shown.splitlines()
    assert (header.split(), blank) == (["LEVEL", "RULE", "CHECK", "RESULT"], "")
    assert len(rows) == len(CONTRACTS[service].checks)
    assert {row.split("  ")[-1].strip() for row in rows} == {PASSED}
    assert last.startswith(f"{address} reaches level 5 of the {service} contract: it serves every")


class ThreeMethods(SchedulerServiceServicer):
    """Serves the methods that a scheduler needs at least."""

    def __init__(self) -> None:
        self._small = SmallSchedulerService()

    def CreateSession(self, request: Any, context: Any) -> rpc.Session:  # noqa: N802 - gRPC's name
        """Start a session that declares no more than it has."""
        opened: rpc.Session = self._small.CreateSession(request, context)
        opened.windows = opened.resumable = False
        return opened

    def DeleteSession(self, request: Any, context: Any) -> Empty:  # noqa: N802 - gRPC's name
        """Delete a session."""
        return self._small.DeleteSession(request, context)

    def RunRound(self, request: Any, context: Any) -> rpc.RunRoundResponse:  # noqa: N802
        """Run a round."""
        return self._small.RunRound(request, context)


@pytest.fixture
def three_methods() -> Iterator[str]:
    """Serve three methods and yield their address."""
    service = ThreeMethods()  # type: ignore[abstract] # gRPC itself refuses the other methods
    with serving_scheduler(service) as address:
        yield address


def test_three_methods_are_enough_for_level_3(three_methods: str, tmp_path: Path) -> None:
    """And not for level 4; what is not served is no failure of it."""
    command = ("conform", "--contract", "scheduler", three_methods)
    done = reprieve(tmp_path, *command)
    assert done.stdout.splitlines()[-1] == (
        f"{three_methods} reaches level 3 of the scheduler contract: "
        "it serves `replay` and what reads its runs, with preemption"
    )
    again = reprieve(tmp_path, *command, "--level", "4", "-o", "json", code=DIFFERS)
    assert "level 4 is not reached" in again.stderr
    report = json.loads(again.stdout)
    assert (report["contract"], report["level"], len(report["levels"])) == ("scheduler", 3, 5)
    results: dict[int, set[str]] = {}
    for check in report["checks"]:
        results.setdefault(check["level"], set()).add(check["result"])
        assert bool(check["why"]) == (check["result"] != PASSED)
        assert check["rule"]
    assert results == {1: {PASSED}, 2: {PASSED}, 3: {PASSED}, 4: {NOT_SERVED}, 5: {NOT_SERVED}}


class Excepted(ThreeMethods):
    """Its sessions end in an exception whose text is long, as some languages' gRPC sends it."""

    text = "undefined method 'nodes'\n" + "  from scheduler.rb:7\n" * 100

    def RunRound(self, request: Any, context: Any) -> rpc.RunRoundResponse:  # noqa: N802, ARG002 - as above
        """Answer no round."""
        context.abort(grpc.StatusCode.UNKNOWN, self.text)
        raise AssertionError


def test_a_reason_is_shown_once_and_in_one_line(tmp_path: Path) -> None:
    """And whole in JSON: a stack trace for each of forty checks hides the table."""
    with serving_scheduler(Excepted()) as address:  # type: ignore[abstract] # as above
        command = ("conform", "--contract", "scheduler", address)
        shown = reprieve(tmp_path, *command, code=DIFFERS).stdout
        report = json.loads(reprieve(tmp_path, *command, "-o", "json", code=DIFFERS).stdout)
    assert max(map(len, shown.splitlines())) < 400
    first, *others = [line for line in shown.splitlines() if FAILED in line]
    assert first.endswith("undefined method 'nodes' ...")
    assert {line.partition(f"{FAILED}: ")[2] for line in others} == {
        "the same text as of 'creates and deletes sessions'"
    }
    assert "-o json has them whole" in shown
    whole = [check["why"] for check in report["checks"] if check["result"] == FAILED]
    assert all("from scheduler.rb:7" in why for why in whole)


class Unnamed(ThreeMethods):
    """Returns UNKNOWN for the stream that it does not serve, as Ruby's gRPC does."""

    def StreamingRunRound(self, request: Any, context: Any) -> Any:  # noqa: N802, ARG002 - as above
        """Answer no stream."""
        context.abort(grpc.StatusCode.UNKNOWN, "Illegal arity of reply generator")


def test_a_method_that_is_not_served_is_named_with_what_it_has_to_return(tmp_path: Path) -> None:
    """And not only with the words of the service's library."""
    with serving_scheduler(Unnamed()) as address:  # type: ignore[abstract] # as above
        command = ("conform", "--contract", "scheduler", address, "-o", "json")
        report = json.loads(reprieve(tmp_path, *command, code=DIFFERS).stdout)
    [why] = [check["why"] for check in report["checks"] if check["rule"] == "S2"]
    assert why == (
        "StreamingRunRound returned UNKNOWN: Illegal arity of reply generator; "
        "what is not served has to return UNIMPLEMENTED"
    )


class Exchanged(NamedTuple):
    """A unary call's request and its answer, which may be spoiled."""

    method: str
    request: Any
    answer: Any


Spoil = Callable[[Exchanged], None]


class Spoiled:
    """A stub whose answers to requests that make a session or count are spoiled."""

    def __init__(self, stub: Any, spoil: Spoil) -> None:
        self._stub = stub
        self._spoil = spoil

    def __getattr__(self, name: str) -> Any:
        """Return a method of the stub."""
        method = getattr(self._stub, name)
        if name not in {"CreateSession", "RunRound", "Apply"}:
            return method

        def call(request: Any, timeout: float) -> Any:
            answer = method(request, timeout=timeout)
            self._spoil(Exchanged(name, request, answer))
            return answer

        return call


def checked(here: EmbeddedServices, service: str, spoil: Spoil) -> ContractReport:
    """Return what is found of our service with answers that are spoiled."""
    contract, address = CONTRACTS[service], here.addresses[service]
    spoiled = dataclasses.replace(contract, stub=lambda it: Spoiled(contract.stub(it), spoil))
    return run_checks(spoiled, channel(address), address)


def _outcomes(it: Exchanged) -> Iterator[Any]:
    for outcomes in getattr(it.answer, "rounds", ()):
        yield from outcomes.outcomes


def wrong_sequence(it: Exchanged) -> None:
    """Answer another request's number."""
    if it.method != "CreateSession":
        it.answer.sequence = it.request.stamp.sequence + 1


def unknown_node(it: Exchanged) -> None:
    """Bind to a node that nobody has seen, where the pod was tried before."""
    for outcome in _outcomes(it):
        if outcome.attempts > 1 and outcome.HasField("bind"):
            outcome.bind.node_name = "nowhere"


def lost_pods(it: Exchanged) -> None:
    """Leave pods out where max_pods is reached."""
    for outcomes in getattr(it.answer, "rounds", ()):
        outcomes.more = False


def other_words(it: Exchanged) -> None:
    """Say why in words of one's own."""
    for outcome in _outcomes(it):
        for verdict in (outcome.unschedulable, *outcome.refusals.verdicts):
            if verdict.message:
                verdict.message = "it does not fit"


def more_victims(it: Exchanged) -> None:
    """Preempt a pod that may stay as well."""
    for outcome in _outcomes(it):
        for kept in outcome.unschedulable.preemption.reprieved:
            outcome.unschedulable.preemption.victims.add(pod=kept)


def short_windows(it: Exchanged) -> None:
    """Take the first round of a window only."""
    if it.method == "RunRound":
        del it.answer.rounds[1:]
        it.answer.rounds[0].window_continues = False


def wrong_resumable(it: Exchanged) -> None:
    """Deny a checkpoint that is served."""
    if it.method == "CreateSession":
        it.answer.resumable = False


def shuffled_heads(it: Exchanged) -> None:
    """Show heads in another order than they are popped."""
    if len(getattr(it.answer, "heads", ())) > 1:
        it.answer.heads.sort(key=lambda head: head.pop.uid, reverse=True)


def early_wakeup(it: Exchanged) -> None:
    """Ask for the tick long after a backoff has ended."""
    if getattr(it.answer, "next_wakeup_time_ns", 0):
        it.answer.next_wakeup_time_ns += 3_600_000_000_000


def applied_not_next(it: Exchanged) -> None:
    """Count an operation that was not applied."""
    results = getattr(it.answer, "results", ())
    if any(result.code == queue_pb2.OUTCOME_CODE_NOT_NEXT for result in results):
        it.answer.applied += 1


def lost_nominations(it: Exchanged) -> None:
    """Forget the nodes of heads."""
    for head in getattr(it.answer, "heads", ()):
        head.ClearField("nominated_node_name")


def _steps(it: Exchanged) -> Iterator[Any]:
    for result in getattr(it.answer, "results", ()):
        if result.HasField("step"):
            yield result.step


def nobody_evicted(it: Exchanged) -> None:
    """Evict no pod that is named by its uid alone."""
    for operation, step in zip(getattr(it.request, "operations", ()), _steps(it), strict=False):
        if operation.step.active_uids:
            step.ClearField("evictions")


def other_ranking(it: Exchanged) -> None:
    """Rank pods by their names."""
    for step in _steps(it):
        step.ranking.sort(key=lambda place: place.pod.uid, reverse=True)


def own_grace(it: Exchanged) -> None:
    """Leave out how long a pod has."""
    for step in _steps(it):
        for eviction in step.evictions:
            eviction.ClearField("grace_period_override_duration_ns")


def calm_too_low(it: Exchanged) -> None:
    """Say that no step ever changes anything."""
    for step in _steps(it):
        for amount in step.calm.min_available:
            amount.amount = 1


def unknown_group(it: Exchanged) -> None:
    """Ask for nodes of a group that nobody has sent."""
    if isinstance(it.answer, autoscaler_pb.ApplyResponse) and it.answer.call.HasField(
        "increase_size"
    ):
        it.answer.call.increase_size.group = "nobody's"


def other_instances(it: Exchanged) -> None:
    """Delete instances that the group has not."""
    if isinstance(it.answer, autoscaler_pb.ApplyResponse) and it.answer.call.HasField(
        "delete_nodes"
    ):
        it.answer.call.delete_nodes.provider_ids[:] = ["nobody's"]


def due_at_once(it: Exchanged) -> None:
    """Have background work again at the time of background work."""
    if isinstance(it.answer, autoscaler_pb.ApplyResponse) and it.request.step.HasField(
        "background_work"
    ):
        it.answer.next_due_time_ns = it.request.step.time_ns


def unknown_nodes(it: Exchanged) -> None:
    """Report nodes that are not the caller's."""
    for node in it.answer.report.unneeded if hasattr(it.answer, "report") else ():
        node.node_name = "nowhere"


FAULTS: dict[tuple[str, Spoil], tuple[str, str]] = {
    ("scheduler", wrong_sequence): ("creates and deletes sessions", "sequence is 2, expected 1"),
    ("scheduler", wrong_resumable): (
        "declares what it implements",
        "Session.resumable is False, expected True",
    ),
    ("scheduler", unknown_node): (
        "follows changes of objects",
        "outcomes[0].bind.node_name: 'nowhere': no node has this name",
    ),
    ("scheduler", lost_pods): ("tries as many pods as it may", "is 2, expected 4"),
    ("scheduler", other_words): (
        "gives the message of kube scheduler",
        "message is 'it does not fit', expected 'no nodes available to schedule pods'",
    ),
    ("scheduler", more_victims): ("preempts no pod that can stay", "preemption.victims is"),
    ("scheduler", short_windows): (
        "runs a window as rounds one by one",
        "window_continues of the rounds is [False], expected [True, True, False]",
    ),
    ("queue", shuffled_heads): ("shows the next pods as heads", "heads is ["),
    ("queue", early_wakeup): ("backs off by attempts", "next_wakeup_time_ns is 36"),
    ("queue", applied_not_next): ("commits a pop only if it is next", "applied is 1, expected 0"),
    ("queue", lost_nominations): (
        "keeps nominations",
        "heads[0].nominated_node_name is '', expected 'n'",
    ),
    ("autoscaler", unknown_group): (
        "grows a group for a pod that fits nowhere",
        'call.increase_size.group is "nobody\'s", which was never sent',
    ),
    ("autoscaler", other_instances): (
        "deletes a node that is unneeded for long",
        'call.delete_nodes.provider_ids[0] is "nobody\'s", which is not an instance of g',
    ),
    ("autoscaler", due_at_once): (
        "takes steps and changes",
        "next_due_time_ns is 15000000000, not after the step's 15000000000",
    ),
    ("autoscaler", unknown_nodes): (
        "deletes a node that is unneeded for long",
        "report.unneeded is 'nowhere', which was never sent",
    ),
    ("eviction", nobody_evicted): (
        "evicts at a hard threshold",
        "evictions of pods named by uid is 0, expected 1",
    ),
    ("eviction", other_ranking): (
        "ranks pods as the kubelet does",
        "ranking is ['within', 'over-low', 'over-high'], expected ['over-low',",
    ),
    ("eviction", own_grace): (
        "waits for the grace of a soft threshold",
        "grace_period_override_duration_ns is 0, expected 7000000000",
    ),
    ("eviction", calm_too_low): (
        "returns amounts at which steps change nothing",
        "calm.min_available[memory.available] is 1, expected from 1Gi to 4Gi",
    ),
}
"""Faults by service, each with a check that finds it and what is said of it."""


@pytest.mark.parametrize(
    ("service", "spoil"), FAULTS, ids=[f"{name}-{fault.__name__}" for name, fault in FAULTS]
)
def test_a_fault_fails_its_check(here: EmbeddedServices, service: str, spoil: Spoil) -> None:
    """By its name, and with what was expected; the level below the check's is reached."""
    report = checked(here, service, spoil)
    check, why = FAULTS[service, spoil]
    failed = {result.check: result for result in report.results if result.result == FAILED}
    assert check in failed, list(failed)
    assert why in failed[check].why
    assert report.level == failed[check].level - 1


def test_an_answer_that_is_sent_again_is_not_a_retry(here: EmbeddedServices) -> None:
    """The same request again must answer what it answered."""
    seen: set[tuple[str, int]] = set()

    def forgetful(it: Exchanged) -> None:
        if it.method == "Apply":
            key = (it.request.stamp.session_id, it.request.stamp.sequence)
            if key in seen:
                it.answer.ClearField("heads")
            seen.add(key)

    report = checked(here, "queue", forgetful)
    failed = [result.check for result in report.results if result.result == FAILED]
    assert failed == ["repeats a response without applying it twice"]


@pytest.mark.parametrize(
    ("arguments", "said", "code"),
    [
        (("--contract", "queue", "127.0.0.1:1"), "the queue at 127.0.0.1:1 returned UNAV", SERVICE),
        (("--contract", "queue"), "give one ADDRESS", REFUSED),
        (("--contract", "queue", "a", "b"), "give one ADDRESS", REFUSED),
        (("--contract", "queue", "a", "--stream"), "--stream is for vectors", REFUSED),
        (("--level", "2"), "--level needs --contract", REFUSED),
        (("--contract", "world", "a"), "'world' is not one of", REFUSED),
        (("nothing.jsonl",), "File 'nothing.jsonl' does not exist", REFUSED),
    ],
)
def test_what_cannot_be_checked(
    tmp_path: Path, arguments: tuple[str, ...], said: str, code: int
) -> None:
    """A service that is not there, and options that do not go together."""
    assert said in reprieve(tmp_path, "conform", *arguments, code=code).stderr
