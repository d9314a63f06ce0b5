"""The checks of a scheduling queue; its configurations set everything that they depend on."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

from google.protobuf.empty_pb2 import Empty

from replay.conform.contract.checks import (
    CheckedSession,
    CheckError,
    ConformanceLevel,
    ContractClient,
    NotServedError,
    ServiceContract,
    expect,
    expect_same,
    only,
)
from replay.conform.contract.sessions import session_checks
from reprieve.kube.v1beta1 import meta_pb2, pod_pb2
from reprieve.queue.v1beta1 import queue_pb2, queue_service_pb2_grpc
from reprieve.queue.v1beta1 import queue_service_pb2 as pb
from reprieve.queue.v1beta1.queue_pb2 import Operation
from reprieve.session.v1beta1.session_pb2 import PopId
from services.kube.time import SECOND_NS

BACKOFF_S = 4
HEADS = 10
PLUGIN = "Fit"
APPLIED, WOULD_BLOCK = queue_pb2.OUTCOME_CODE_APPLIED, queue_pb2.OUTCOME_CODE_WOULD_BLOCK
CLOSED = queue_pb2.OUTCOME_CODE_CLOSED
NOT_NEXT, UNKNOWN_POP = queue_pb2.OUTCOME_CODE_NOT_NEXT, queue_pb2.OUTCOME_CODE_UNKNOWN_POP
CHECKS = session_checks(stream_level=3)
POP = queue_pb2.Pop()


def pod(name: str, priority: int = 0) -> pod_pb2.Pod:
    """Return a pending pod."""
    meta = meta_pb2.ObjectMeta(name=name, namespace="default", uid=f"uid-{name}")
    return pod_pb2.Pod(metadata=meta, spec=pod_pb2.PodSpec(priority=priority))


def ref(name: str) -> meta_pb2.ObjectReference:
    """Return the reference to a pod."""
    return meta_pb2.ObjectReference(kind="Pod", namespace="default", name=name, uid=f"uid-{name}")


def at(second: float, **operation: Any) -> Operation:
    """Return an operation at its time."""
    return Operation(time_ns=int(second * SECOND_NS), **operation)


def add(name: str, priority: int = 0, second: float = 0, **more: Any) -> Operation:
    """Return the operation that adds a pod."""
    return at(second, add=queue_pb2.Add(pod=pod(name, priority), **more))


def commit(name: str, cycle: int, second: float = 0) -> Operation:
    """Return the operation that takes exactly this pod."""
    return at(second, commit_pop=queue_pb2.CommitPop(pop=PopId(uid=f"uid-{name}", cycle=cycle)))


def give_back(
    name: str, cycle: int, second: float = 0, failure: queue_pb2.Failure | None = None
) -> Operation:
    """Return the operation that returns a pod to the queue which PLUGIN, or `failure`, refused."""
    failure = failure or queue_pb2.Failure(unschedulable_plugins=[PLUGIN])
    pop = PopId(uid=f"uid-{name}", cycle=cycle)
    return at(second, add_unschedulable=queue_pb2.AddUnschedulable(pop=pop, failure=failure))


def hint(event: str, plugin: str = PLUGIN, **only_if: Any) -> queue_pb2.HintRegistration:
    """Return a registration of a plugin, with a condition where there is one."""
    condition = queue_pb2.HintCondition(**only_if) if only_if else None
    return queue_pb2.HintRegistration(plugin=plugin, event=event, only_if=condition)


def move(label: str, second: float, **more: Any) -> Operation:
    """Return the operation that reports an event; `more` are fields of Move."""
    event = queue_pb2.ClusterEvent(label=label)
    if (changed := more.pop("changed", None)) is not None:
        event.new_object.pod.CopyFrom(changed)
    return at(second, move=queue_pb2.Move(event=event, **more))


def _waiting(
    client: ContractClient, *hints: queue_pb2.HintRegistration, pops_early: bool = False
) -> CheckedSession:
    """Return a session whose pods wait for events of `hints` and for their backoff.

    Without hints, PLUGIN has registered for NodeAdd.
    """
    config = queue_pb2.QueueConfig(
        initial_backoff_duration_ns=BACKOFF_S * SECOND_NS,
        max_backoff_duration_ns=10 * SECOND_NS,
        pop_from_backoff_q=pops_early,
        hints=hints or [hint("NodeAdd")],
    )
    return client.session(pb.CreateSessionRequest(config=config))


def _apply(session: CheckedSession, *operations: Operation, heads: int = HEADS) -> pb.ApplyResponse:
    answer: pb.ApplyResponse = session.send(pb.ApplyRequest(operations=operations, heads=heads))
    return answer


def _done(session: CheckedSession, *operations: Operation) -> pb.ApplyResponse:
    """Return the response to operations that must all be applied, without results."""
    answer = _apply(session, *operations)
    expect("applied", answer.applied, len(operations))
    expect("results of applied operations", len(answer.results), 0)
    return answer


def _heads(session: CheckedSession, *operations: Operation) -> list[tuple[str, int, int]]:
    """Return the heads after operations that must all be applied, without results."""
    return _shown(_done(session, *operations))


def _shown(answer: pb.ApplyResponse) -> list[tuple[str, int, int]]:
    heads = answer.heads
    return [(head.pop.uid.removeprefix("uid-"), head.pop.cycle, head.attempts) for head in heads]


def _popped(session: CheckedSession, second: float = 0) -> tuple[str, int, int] | None:
    """Pop, and return name, cycle and attempt of the pod, None if there was none."""
    result = only("results", _apply(session, at(second, pop=POP)).results)
    if result.code == WOULD_BLOCK:
        return None
    expect("results[0].code", result.code, APPLIED)
    return _shown(pb.ApplyResponse(heads=[result.popped]))[0]


@CHECKS.level(1, rule=1)
def pops_by_priority_and_age(client: ContractClient) -> None:
    """Check that higher priorities come first, then older pods."""
    session = client.session()
    added = [add("a", 1), add("b", 5, 1), add("c", 1, 2), add("d", 5, 3)]
    _done(session, *added)
    in_order = [("b", 1, 1), ("d", 2, 1), ("a", 3, 1), ("c", 4, 1)]
    expect("pops", [_popped(session, 4) for _ in in_order], in_order)


@CHECKS.level(1, rule=1)
def pops_by_sort_key(client: ContractClient) -> None:
    """Check that keys are compared bytewise, smaller first, and equal ones by age."""
    session = client.session()
    keys = {"a": b"z", "b": b"k", "c": b"k\x00", "d": b"k"}
    _done(session, *(add(name, 9 - len(key), 0, sort_key=key) for name, key in keys.items()))
    pops = [_popped(session) for _ in keys]
    expect("pops by sort_key", [pop and pop[0] for pop in pops], ["b", "d", "c", "a"])


@CHECKS.level(1, rule=2)
def shows_the_next_pods_as_heads(client: ContractClient) -> None:
    """Check heads against the pops that follow, and that showing them pops none."""
    session = client.session()
    added = [add("a", 1), add("b", 5), add("c", 3), add("d", 2)]
    answer = _apply(session, *added, heads=3)
    expect("heads", _shown(answer), [("b", 1, 1), ("c", 2, 1), ("d", 3, 1)])
    expect("heads again", _shown(_apply(session, heads=3)), _shown(answer))
    expect("heads of a request for none", _shown(_apply(session, heads=0)), [])
    in_order = [*_shown(answer), ("a", 4, 1)]
    expect("pops", [_popped(session) for _ in in_order], in_order)


@CHECKS.level(1, rule=3)
def counts_cycles_and_reports_an_empty_queue(client: ContractClient) -> None:
    """Check the cycles of pops, WOULD_BLOCK, and CLOSED after Close."""
    session = client.session()
    expect("a pop of an empty queue", _popped(session), None)
    _done(session, add("a"), add("b"))
    expect("a pop", _popped(session), ("a", 1, 1))
    expect("the next pop", _popped(session), ("b", 2, 1))
    _done(session, add("c"), at(0, close=Empty()))
    expect("a pop of a queue that is closed and has a pod", _popped(session), ("c", 3, 1))
    result = only("results", _apply(session, at(0, pop=POP)).results)
    expect("results[0].code of a queue that is closed and empty", result.code, CLOSED)


@CHECKS.level(1, rule=4)
def forgets_deleted_pods(client: ContractClient) -> None:
    """Check waiting, popped and unknown pods, and one that is updated."""
    session = client.session()
    _done(session, add("a"), add("b", 1), add("c"))
    higher = queue_pb2.Update(old_pod=pod("c"), pod=pod("c", 9))
    heads = _heads(session, at(1, update=higher), at(1, delete_pod=ref("b")))
    expect("heads", heads, [("c", 1, 1), ("a", 2, 1)])
    expect("a pop", _popped(session, 1), ("c", 1, 1))
    popped, unknown = PopId(uid="uid-c", cycle=1), PopId(uid="uid-x", cycle=1)
    ended = [at(1, done=popped), at(1, done=unknown), at(1, delete_pod=ref("c"))]
    answer = _apply(session, *ended, at(1, delete_pod=ref("x")))
    expect("applied, with what is unknown", answer.applied, 4)
    expect("heads", _shown(answer), [("a", 2, 1)])


@CHECKS.level(2, rule=5)
def keeps_refused_pods(client: ContractClient) -> None:
    """Check that one waits without an event, counts its attempts, and is deleted as others."""
    session = _waiting(client)
    _done(session, add("a", 1), add("b"), commit("a", 1), commit("b", 2))
    heads = _heads(session, give_back("a", 1), give_back("b", 2), at(20, flush_backoff=Empty()))
    expect("heads while refused pods wait", heads, [])
    heads = _heads(session, at(21, delete_pod=ref("a")), move("NodeAdd", 21))
    expect("heads after an event, and after one pod's deletion", heads, [("b", 3, 2)])


@CHECKS.level(2, rule=6)
def moves_pods_by_the_events_of_their_plugins(client: ContractClient) -> None:
    """Check that other events move no pod, and broader registrations and unlisted plugins do."""
    session = _waiting(
        client, hint("NodeAdd"), hint("NodeUpdate", "Broad"), hint("*", "Any"), hint("PodAdd", "No")
    )
    plugins = {"a": PLUGIN, "b": "Broad", "c": "Any", "d": "No", "e": "Unlisted"}
    for cycle, (name, plugin) in enumerate(plugins.items(), 1):
        failure = queue_pb2.Failure(unschedulable_plugins=[plugin])
        _done(session, add(name), commit(name, cycle), give_back(name, cycle, failure=failure))
    for second, label, moved in (
        (30, "NodeUpdateNodeTaint", ["b", "c", "e"]),
        (31, "NodeAdd", ["a", "b", "c", "e"]),
    ):
        names = [name for name, _, _ in _heads(session, move(label, second))]
        expect(f"heads after {label}", names, moved)


@CHECKS.level(2, rule=6)
def reads_the_conditions_of_registrations(client: ContractClient) -> None:
    """Check own_pod, new_labels and never."""
    labels = meta_pb2.LabelSelector(match_labels={"ok": "yes"})
    session = _waiting(
        client,
        hint("UnscheduledPodUpdate", "Own", own_pod=True),
        hint("UnscheduledPodUpdate", "Labels", new_labels=labels),
        hint("UnscheduledPodUpdate", "Never", never=True),
    )
    for cycle, (name, plugin) in enumerate({"a": "Own", "b": "Labels", "c": "Never"}.items(), 1):
        failure = queue_pb2.Failure(unschedulable_plugins=[plugin])
        _done(session, add(name), commit(name, cycle), give_back(name, cycle, failure=failure))
    other = pod("x")
    heads = _heads(session, move("UnscheduledPodUpdate", 30, changed=other))
    expect("heads after an update of another pod", heads, [])
    other.metadata.labels["ok"] = "yes"
    heads = _heads(session, move("UnscheduledPodUpdate", 30, changed=other))
    expect("heads after an update with the labels", [name for name, _, _ in heads], ["b"])
    heads = _heads(session, move("UnscheduledPodUpdate", 30, changed=pod("a")))
    expect("heads after an update of the pod itself", [name for name, _, _ in heads], ["a", "b"])


@CHECKS.level(2, rule=7)
def backs_off_by_attempts(client: ContractClient) -> None:
    """Check that the backoff doubles up to its limit, and next_wakeup_time_ns.

    Only an event of its plugin moves the pod, and a head that names what moved it names that event.
    """
    session, second = _waiting(client), 0
    _done(session, add("a"))
    for attempt, backoff_s in ((1, 4), (2, 8), (3, 10)):
        expect("a pop", _popped(session, second), ("a", attempt, attempt))
        _done(session, give_back("a", attempt, second))
        heads = _heads(session, move("PodDelete", second + 2))
        expect("heads after an event that moves no pod", heads, [])
        answer = _done(session, move("NodeAdd", second + 2))
        expect("heads while the pod backs off", _shown(answer), [])
        due_ns = (second + backoff_s) * SECOND_NS
        if not due_ns <= answer.next_wakeup_time_ns <= due_ns + SECOND_NS:
            wakeup_ns = answer.next_wakeup_time_ns
            raise CheckError(
                f"next_wakeup_time_ns is {wakeup_ns}, expected the first tick after {due_ns}"
            )
        early = second + backoff_s - 1
        heads = _heads(session, at(early, flush_backoff=Empty()))
        expect("heads before the backoff has ended", heads, [])
        moved_ns = (second + 2) * SECOND_NS
        second += backoff_s + 1
        answer = _done(session, at(second, flush_backoff=Empty()))
        expect("heads after the backoff", _shown(answer), [("a", attempt + 1, attempt + 1)])
        (head,) = answer.heads
        if head.HasField("requeue"):
            expect("requeue.event", head.requeue.event, "NodeAdd")
            expect("requeue.time_ns", head.requeue.time_ns, moved_ns)


@CHECKS.level(2, rule=8)
def pops_a_pod_that_backs_off_where_none_is_active(client: ContractClient) -> None:
    """Check pop_from_backoff_q, which is on unless it is set to false."""
    session = _waiting(client, pops_early=True)
    _done(session, add("a"), commit("a", 1), give_back("a", 1))
    heads = _heads(session, move("NodeAdd", 1), add("b", 0, 1))
    expect("heads while a pod backs off", heads, [("b", 2, 1), ("a", 3, 2)])


@CHECKS.level(2, rule=9)
def notices_an_event_during_an_attempt(client: ContractClient) -> None:
    """Check that a pod refused after the event that helps it does not wait for another."""
    session = _waiting(client)
    _done(session, add("a"))
    _popped(session)
    _done(session, move("NodeAdd", 1), give_back("a", 1, 2))
    expect("heads", _heads(session, at(30, flush_backoff=Empty())), [("a", 2, 2)])


@CHECKS.level(2, rule=10)
def moves_leftover_pods(client: ContractClient) -> None:
    """Check pods that are moved after max_unschedulable_duration_ns, and the wakeup for it."""
    session = _waiting(client)
    answer = _done(session, add("a"), commit("a", 1), give_back("a", 1))
    if not 300 * SECOND_NS <= answer.next_wakeup_time_ns <= 330 * SECOND_NS:
        wakeup_ns = answer.next_wakeup_time_ns
        raise CheckError(
            f"next_wakeup_time_ns is {wakeup_ns}, expected the tick after five minutes"
        )
    heads = _heads(session, at(290, flush_leftover=Empty()))
    expect("heads before five minutes", heads, [])
    heads = _heads(session, at(330, flush_leftover=Empty()), at(330, flush_backoff=Empty()))
    expect("heads after five minutes", heads, [("a", 2, 2)])


@CHECKS.level(2, rule=11)
def activates_pods_at_once(client: ContractClient) -> None:
    """Check that neither events nor backoffs are waited for."""
    session = _waiting(client)
    _done(session, add("a"), commit("a", 1), give_back("a", 1))
    heads = _heads(session, at(0, activate=queue_pb2.Activate(pods=[ref("a"), ref("x")])))
    expect("heads after Activate", heads, [("a", 2, 2)])


@CHECKS.level(2, rule=12)
def moves_the_pods_that_a_move_selects(client: ContractClient) -> None:
    """Check priority_at_most and all_but."""
    session = _waiting(client)
    for cycle, (name, priority) in enumerate({"a": 9, "b": 5, "c": 1, "d": 0}.items(), 1):
        _done(session, add(name, priority), commit(name, cycle), give_back(name, cycle))
    moved = move("NodeAdd", 30, priority_at_most=5, all_but=ref("c"))
    names = [name for name, _, _ in _heads(session, moved)]
    expect("heads after a move of priorities up to 5 but for c", names, ["b", "d"])


@CHECKS.level(2, rule=13)
def tries_pods_again_after_errors_and_pending(client: ContractClient) -> None:
    """Check that an error waits for no event, and that a Pending pod does not back off."""
    session = _waiting(client, hint("NodeAdd", "Holds"))
    _done(session, add("a"), commit("a", 1), give_back("a", 1, 0, queue_pb2.Failure(error=True)))
    heads = _heads(session, at(20, flush_backoff=Empty()))
    expect("heads after the backoff of an error", heads, [("a", 2, 2)])
    held = queue_pb2.Failure(pending_plugins=["Holds"])
    _done(session, commit("a", 2, 20), give_back("a", 2, 20, held))
    heads = _heads(session, move("NodeAdd", 20))
    expect("heads after the event of a plugin that returned Pending", heads, [("a", 3, 3)])


@CHECKS.level(2, rule=14)
def holds_gated_pods(client: ContractClient) -> None:
    """Check that a gated pod is not active, and becomes so by what follows the gate's removal."""
    session = _waiting(client)
    heads = _heads(session, add("a", 0, 0, gates=["Gate"]), add("b"))
    expect("heads beside a gated pod", heads, [("b", 1, 1)])
    _done(session, commit("b", 1), at(0, done=PopId(uid="uid-b", cycle=1)))
    opened = queue_pb2.SetGates(pod=ref("a"))
    heads = _heads(session, at(1, set_gates=opened))
    expect("heads after SetGates, which moves no pod", heads, [])
    heads = _heads(session, at(2, activate=queue_pb2.Activate(pods=[ref("a")])))
    expect("heads after Activate of a pod without gates", heads, [("a", 2, 1)])


@CHECKS.level(2, rule=15)
def moves_pods_by_assigned_pods(client: ContractClient) -> None:
    """Check that pods move whose required affinity term the assigned pod matches."""
    session = _waiting(client, hint("AssignedPodAdd"))
    near = pod("a")
    affinity = near.spec.affinity.pod_affinity
    term = affinity.required_during_scheduling_ignored_during_execution.add()
    term.topology_key = "kubernetes.io/hostname"
    term.label_selector.match_labels["app"] = "db"
    _done(session, at(0, add=queue_pb2.Add(pod=near)), add("b"))
    _done(session, commit("a", 1), give_back("a", 1), commit("b", 2), give_back("b", 2))
    assigned = pod("x")
    assigned.spec.node_name = "n"
    added = queue_pb2.AssignedPodAdd(pod=assigned)
    heads = _heads(session, at(30, assigned_pod_add=added))
    expect("heads after another pod was assigned", heads, [])
    assigned.metadata.labels["app"] = "db"
    added.pod.CopyFrom(assigned)
    heads = _heads(session, at(31, assigned_pod_add=added))
    expect("heads after a pod of the affinity term was assigned", heads, [("a", 3, 2)])


@CHECKS.level(3, rule=16)
def commits_a_pop_only_if_it_is_next(client: ContractClient) -> None:
    """Check uid and cycle, and that nothing after it in the batch is applied."""
    session = client.session()
    before = _done(session, add("a", 9), add("b"), add("c"))
    for wrong in (commit("b", 1), commit("a", 2)):
        answer = _apply(session, wrong, add("x", 99))
        expect("applied", answer.applied, 0)
        codes = [(result.index, result.code) for result in answer.results]
        expect("results", codes, [(0, NOT_NEXT)])
        expect("heads", _shown(answer), _shown(before))
    answer = _apply(session, commit("a", 1), commit("c", 2), commit("b", 2))
    expect("applied", answer.applied, 1)
    expect("heads after a part of a batch", _shown(answer), [("b", 2, 1), ("c", 3, 1)])


@CHECKS.level(3, rule=17)
def takes_back_pods_in_flight_alone(client: ContractClient) -> None:
    """Check UNKNOWN_POP for a pod that waits, and for one that was returned."""
    session = client.session()
    _done(session, add("a", 9), add("b"), commit("a", 1))
    for operation in (give_back("b", 1), give_back("a", 2), give_back("x", 1)):
        result = only("results", _apply(session, operation).results)
        expect("results[0].code of a pop that is not in flight", result.code, UNKNOWN_POP)
    _done(session, give_back("a", 1))
    result = only("results", _apply(session, give_back("a", 1)).results)
    expect("results[0].code of a pop that was returned before", result.code, UNKNOWN_POP)


@CHECKS.level(3, rule=18)
def commits_refusals_as_one_by_one(client: ContractClient) -> None:
    """Check CommitUnschedulable against CommitPop and AddUnschedulable of each pod."""
    hints = (hint("NodeAdd"), hint("PodAdd", "Other"))
    together, single = _waiting(client, *hints), _waiting(client, *hints)
    for session in (together, single):
        _done(session, add("a", 9), add("b", 5), add("c", 1))
    uids = ["uid-a", "uid-b", "uid-nobody", "uid-c"]
    failures = [queue_pb2.Failure(unschedulable_plugins=[name]) for name in (PLUGIN, "Other")]
    refusals = queue_pb2.CommitUnschedulable(uids=uids, first_cycle=1, failures=failures)
    refusals.failure_indexes.extend([0, 1, 0, 0])
    answer = _apply(together, at(1, commit_unschedulable=refusals))
    result = only("results", answer.results)
    expect("results[0]", (result.code, result.pods, answer.applied), (NOT_NEXT, 2, 0))
    for name, cycle, failure in (("a", 1, failures[0]), ("b", 2, failures[1])):
        one_by_one = _done(single, commit(name, cycle, 1), give_back(name, cycle, 1, failure))
    expect("heads after refusals", _shown(answer), _shown(one_by_one))
    swapped = queue_pb2.CommitUnschedulable(
        uids=["uid-d", "uid-c"], first_cycle=3, failures=failures, failure_indexes=[0, 0]
    )
    listed = _apply(together, add("d", 0, 1), at(1, commit_unschedulable=swapped))
    result = only("results", listed.results)
    expect("results[0] of pods in another order", (result.code, result.pods), (NOT_NEXT, 0))
    _done(single, add("d", 0, 1))
    later = [move("NodeAdd", 2), at(60, flush_backoff=Empty())]
    expect_same("a response after refusals", _done(together, *later), _done(single, *later))


@CHECKS.level(3, rule=19)
def keeps_nominations(client: ContractClient) -> None:
    """Check that a head has its pod's node, until the nomination ends."""
    session = client.session()
    nominate = queue_pb2.Nominate(pod=ref("a"), node_name="n")
    answer = _done(session, add("a"), at(0, nominate=nominate))
    expect("heads[0].nominated_node_name", answer.heads[0].nominated_node_name, "n")
    ended = [at(1, delete_nomination=ref(name)) for name in ("a", "x")]
    has_node = _done(session, *ended).heads[0].HasField("nominated_node_name")
    expect("heads[0].nominated_node_name is set", has_node, expected=False)
    again = [at(2, nominate=nominate), at(2, delete_pod=ref("a")), add("a", 0, 2)]
    has_node = _done(session, *again).heads[0].HasField("nominated_node_name")
    expect("nominated_node_name of a pod that was deleted and added", has_node, expected=False)


@CHECKS.level(4, rule=20)
def shows_the_sub_queue_of_each_pod(client: ContractClient) -> None:
    """Check GetState, and WatchPending's counts."""
    session = client.session()
    nominate = queue_pb2.Nominate(pod=ref("b"), node_name="n")
    _done(session, add("a", 9), add("b", 5), add("c"), at(0, nominate=nominate))
    _done(session, commit("a", 1), give_back("a", 1), commit("b", 2))
    state = session.state().state
    places = {entry.pod.name: entry.sub_queue for entry in state.entries}
    expected = {
        "a": queue_pb2.SUB_QUEUE_UNSCHEDULABLE,
        "b": queue_pb2.SUB_QUEUE_IN_FLIGHT,
        "c": queue_pb2.SUB_QUEUE_ACTIVE,
    }
    expect("state.entries by sub_queue", places, expected)
    expect("state.cycle", state.cycle, 2)
    nominated = [(nomination.node_name, nomination.pods[0].uid) for nomination in state.nominations]
    expect("state.nominations", nominated, [("n", "uid-b")])
    request = pb.WatchPendingRequest()
    request.stamp.session_id = session.name
    views = client.call("WatchPending", request)
    first = only("views", islice(views, 1)).sub_queues
    counts = {view.sub_queue: view.count for view in first if view.count}
    views.cancel()
    expect("WatchPending's counts", counts, dict.fromkeys(expected.values(), 1))


@CHECKS.level(5, rule=21)
def lets_callers_form_heads(client: ContractClient) -> None:
    """Check that while no pod waits the next are those added, in QueueSort's order."""
    session = client.session()
    if not session.opened.foreseeable_heads:
        raise NotServedError("Session.foreseeable_heads is false")
    _done(session, add("a"), commit("a", 1), at(0, done=PopId(uid="uid-a", cycle=1)))
    _done(session, add("b", 1, 1), add("c", 5, 1), commit("c", 2, 1), commit("b", 3, 1))


@CHECKS.level(5, rule=21)
def foresees_the_time_after_attempts(client: ContractClient) -> None:
    """Check what a response says of the time after its heads, where it says something.

    Of two heads one is bound and one is refused; then one is added.
    """
    session = _waiting(client)
    added = [add("a", 5, 1), add("b", 1, 1)]
    request = pb.ApplyRequest(operations=added, heads=HEADS, attempts_time_ns=2 * SECOND_NS)
    answer = session.send(request)
    if not answer.HasField("after_attempts"):
        raise NotServedError("no response has after_attempts")
    foreseen = answer.after_attempts
    expect("after_attempts has a wakeup", foreseen.HasField("next_wakeup_time_ns"), False)
    left = _done(session, commit("a", 1, 2), commit("b", 2, 2), give_back("b", 2, 2))
    expect("heads after attempts", _shown(left), [])
    expect("refused_wakeup_time_ns", foreseen.refused_wakeup_time_ns, left.next_wakeup_time_ns)
    late = _done(session, add("c", 1, 3))
    expect("heads after another pod", _shown(late), [("c", 3, 1)])
    expect("next_wakeup_time_ns", late.next_wakeup_time_ns, left.next_wakeup_time_ns)


@CHECKS.level(5, rule=22)
def lets_pods_pass_through(client: ContractClient) -> None:
    """Check PassThrough against Add, CommitPop, Done and Delete of each pod."""
    counted, single = client.session(), client.session()
    if not counted.opened.passes_through:
        raise NotServedError("Session.passes_through is false")
    for cycle, name in enumerate("ab", 1):
        done = at(0, done=PopId(uid=f"uid-{name}", cycle=cycle))
        _done(single, add(name), commit(name, cycle), done, at(0, delete_pod=ref(name)))
    passed = at(0, pass_through=queue_pb2.PassThrough(first_cycle=1, pods=2))
    _done(counted, passed)
    last = add("c", 0, 1)
    expect_same("a response after PassThrough", _done(counted, last), _done(single, last))
    answer = _apply(counted, at(1, pass_through=queue_pb2.PassThrough(first_cycle=3, pods=1)))
    codes = [result.code for result in answer.results]
    expect("results of PassThrough while a pod is active", codes, [NOT_NEXT])


@CHECKS.level(5, rule=23)
def returns_the_pods_of_an_owner_that_stops(client: ContractClient) -> None:
    """Check ReleaseOwner in a live session, and leases that are renewed or run out."""
    config = queue_pb2.QueueConfig(lease_duration_ns=30 * SECOND_NS)
    session = client.session(pb.CreateSessionRequest(config=config, live=True))
    _apply(session, add("a", 9, 1), add("b", 5, 1), add("c", 1, 1))
    owners = ("one", "two")
    for owner, uid in zip(owners, ("uid-a", "uid-b"), strict=True):
        popped = only("results", _apply(session, at(1, pop=queue_pb2.Pop(owner=owner))).results)
        expect(f"pop of owner {owner}", popped.popped.pop.uid, uid)
    heads = _shown(_apply(session, at(2, release_owner="one")))
    expect("heads after ReleaseOwner", [name for name, _, _ in heads], ["a", "c"])
    heads = _shown(_apply(session, at(20, renew_leases="two"), at(40, flush_backoff=Empty())))
    expect("heads while a lease runs", [name for name, _, _ in heads], ["a", "c"])
    _apply(session, at(60, flush_backoff=Empty()))
    heads = _shown(_apply(session, at(61, flush_backoff=Empty())))
    expect("heads after a lease", [name for name, _, _ in heads], ["a", "b", "c"])


def _look(request: Any, answer: Any, sent: Sequence[Any]) -> None:
    del sent
    operations = len(request.operations)
    if answer.applied > operations:
        raise CheckError(f"applied is {answer.applied}, expected at most {operations}")
    if len(answer.heads) > request.heads:
        seen = len(answer.heads)
        raise CheckError(f"heads has {seen} entries, expected at most {request.heads}")
    last = -1
    for place, result in enumerate(answer.results):
        path = f"results[{place}]"
        if not last < result.index < operations:
            raise CheckError(f"{path}.index is {result.index}, expected more than {last}")
        last = result.index
        if result.code not in queue_pb2.OutcomeCode.values()[1:]:
            raise CheckError(f"{path}.code is {result.code}, expected one of OutcomeCode")
        if result.HasField("popped"):
            _check_head(result.popped, f"{path}.popped")
    for place, head in enumerate(answer.heads):
        _check_head(head, f"heads[{place}]")


def _check_head(head: queue_pb2.Head, path: str) -> None:
    if not head.pop.uid:
        raise CheckError(f"{path}.pop.uid is absent, expected the pod's")
    if head.pop.cycle < 1 or head.attempts < 1:
        seen = (head.pop.cycle, head.attempts)
        raise CheckError(f"{path}.pop.cycle and attempts are {seen}, expected to count from 1")


def _story() -> list[pb.ApplyRequest]:
    batches = [
        [add("a", 1, 1), add("b", 5, 1)],
        [add("c", 3, 2), at(2, pop=POP)],
        [at(3, pop=POP), move("NodeAdd", 3), at(3, delete_pod=ref("a"))],
        [add("d", 9, 4), at(60, flush_backoff=Empty())],
    ]
    return [pb.ApplyRequest(operations=batch, heads=HEADS) for batch in batches]


def _malformed() -> dict[str, pb.ApplyRequest]:
    operations = {
        "operations[1].operation": at(0),
        "operations[1].add.pod": at(0, add=queue_pb2.Add()),
        "operations[1].commit_pop.pop": at(0, commit_pop=queue_pb2.CommitPop()),
        "operations[1].move.event.label": move("NodAdd", 0),
    }
    return {
        field: pb.ApplyRequest(operations=[add("x", 99), operation], heads=HEADS)
        for field, operation in operations.items()
    }


LEVELS = (
    ConformanceLevel("pops in order", "clients that pop pods and end them"),
    ConformanceLevel("waits, backs off and is moved by events", "clients that give pods back"),
    ConformanceLevel("commits what was shown", "`serve scheduler --queue`, and so `replay`"),
    ConformanceLevel(
        "checkpoints and reads",
        "`serve scheduler --queue`, `explain` and `replay --compare-recorded`",
    ),
    ConformanceLevel(
        "foreseeable heads and live owners", "every command, with the fewest messages"
    ),
)
QUEUE = ServiceContract(
    service="queue",
    stub=queue_service_pb2_grpc.QueueServiceStub,
    create=pb.CreateSessionRequest,
    method="Apply",
    state=pb.GetStateResponse,
    look=_look,
    story=_story,
    backwards=lambda: _story()[1::-1],
    malformed=_malformed,
    levels=LEVELS,
    checks=CHECKS,
)
