"""The eviction servicer without a network: remembered pods, refusals and responses."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from reprieve.eviction.v1beta1 import eviction_pb2 as ev
from reprieve.eviction.v1beta1 import eviction_service_pb2 as pb
from reprieve.kube.v1beta1 import node_pb2, pod_pb2
from reprieve.session.v1beta1 import session_pb2
from services.eviction.servicer import EvictionServicer
from services.kube.time import SECOND_NS
from services.rpc.errors import FieldError, NotFoundError, PreconditionError
from services.rpc.parts import MESSAGE_BYTES_MAX, PART_BYTES, merged
from tests.builders import make_pod
from tests.scrapes import samples
from tests.unit.eviction.builders import large_batch

GI = 1 << 30
S = SECOND_NS
HARD = ev.EvictionConfig(hard={"memory.available": "1Gi"}, local_storage_isolation=False)
NO_CONTEXT: Any = None


class Caller:
    """A session of a servicer of its own."""

    def __init__(self, config: ev.EvictionConfig, *, live: bool = False) -> None:
        self.servicer = EvictionServicer()
        request = pb.CreateSessionRequest(config=config, live=live)
        self.opened = asyncio.run(self.servicer.CreateSession(request, NO_CONTEXT))
        self.sequence = 0

    def send(self, *operations: pb.Operation) -> pb.ApplyResponse:
        """Send a batch; a refused one leaves the sequence as it is."""
        stamp = session_pb2.Stamp(session_id=self.opened.session_id, sequence=self.sequence + 1)
        request = pb.ApplyRequest(stamp=stamp, operations=operations)
        answer = asyncio.run(self.servicer.Apply(request, NO_CONTEXT))
        self.sequence += 1
        return answer

    def step(self, step: pb.Step) -> pb.OperationResult:
        """Take a step."""
        return self.send(pb.Operation(step=step)).results[0]

    def resume(self, resume: pb.Resume) -> pb.OperationResult:
        """Go on with a step."""
        return self.send(pb.Operation(resume=resume)).results[0]

    def configure(self, config: ev.EvictionConfig) -> pb.Configured:
        """Give the node its thresholds."""
        configure = pb.Configure(node_name="n", config=config)
        return self.send(pb.Operation(configure=configure)).results[0].configured

    def states(self) -> list[ev.NodeState]:
        """Return the whole state."""
        stamp = session_pb2.Stamp(session_id=self.opened.session_id)

        async def parts() -> list[pb.GetStateResponse]:
            request = session_pb2.GetStateRequest(stamp=stamp)
            return [part async for part in self.servicer.GetState(request, NO_CONTEXT)]

        return list(merged(asyncio.run(parts()), pb.GetStateResponse()).nodes)

    def state(self) -> ev.NodeState:
        """Return the only node's state."""
        (state,) = self.states()
        return state


def _pod(name: str, **requests: str) -> pod_pb2.Pod:
    return make_pod(name).uid(name).container("c", requests=requests).message()


def _step(at_s: int, available_gi: float, *pods: str, active: tuple[str, ...] = ()) -> pb.Step:
    return pb.Step(
        node_name="n",
        time_ns=at_s * S,
        observations=ev.Observations(
            memory=ev.MemoryStats(
                available_bytes=int(available_gi * GI), working_set_bytes=4 * GI, time_ns=at_s * S
            )
        ),
        pods=map(_pod, pods),
        active_uids=active,
    )


def _evicted(answer: pb.OperationResult) -> list[str]:
    return [eviction.pod.uid for eviction in answer.step.evictions]


def _under(conditions: Iterable[node_pb2.NodeCondition]) -> list[str]:
    """Return which of the three conditions hold."""
    found = [(condition.type, condition.status) for condition in conditions]
    assert [name for name, _ in found] == ["MemoryPressure", "DiskPressure", "PIDPressure"]
    return [name for name, status in found if status == "True"]


def test_pods_are_remembered_by_uid_until_a_step_leaves_them_out() -> None:
    """New pods come first, then remembered pods in the order of the request."""
    caller = Caller(HARD)
    caller.step(_step(0, 4, "a", "b"))
    answer = caller.step(_step(1, 0.5, "c", active=("b", "a")))
    assert [pod.pod.uid for pod in answer.step.ranking] == ["c", "b", "a"]
    caller.step(_step(2, 0.5, active=("a",)))
    with pytest.raises(FieldError) as caught:
        caller.step(_step(3, 0.5, active=("a", "b")))
    assert caught.value.field == "operations[0].step.active_uids[1]"
    assert _evicted(caller.step(_step(3, 0.5, active=("a",)))) == ["a"]


def test_the_ranking_shows_its_first_ten() -> None:
    """Most likely first."""
    answer = Caller(HARD).step(_step(0, 0.5, *(f"p{number:02}" for number in range(12))))
    assert [pod.pod.uid for pod in answer.step.ranking] == [f"p{n:02}" for n in range(10)]


@pytest.mark.parametrize(
    ("step", "field"),
    [
        (pb.Step(time_ns=0, node_name="n"), "operations[0].step.observations"),
        (_step(0, 4, ""), "operations[0].step.pods[0].metadata.uid"),
        (_step(0, 4, "a", "a"), "operations[0].step.pods"),
        (_step(0, 4, "a", active=("a",)), "operations[0].step.active_uids[0]"),
        (
            pb.Step(time_ns=0, node_name="n", observations=ev.Observations(pods=[ev.PodStats()])),
            "operations[0].step.observations.pods[0].pod",
        ),
        (
            pb.Step(time_ns=0, node_name="n", summary_failed=True, pods=[_pod("a", memory="lots")]),
            "operations[0].step.pods[0].spec.containers[0].resources.requests[memory]",
        ),
    ],
)
def test_a_refused_step_names_its_field_and_makes_no_node(step: pb.Step, field: str) -> None:
    """And does not take its sequence number."""
    caller = Caller(HARD)
    with pytest.raises(FieldError) as caught:
        caller.step(step)
    assert caught.value.field == field
    assert caller.states() == []
    caller.step(_step(0, 4))


@pytest.mark.parametrize(
    ("config", "field"),
    [
        (ev.EvictionConfig(rules="v1.0"), "config.rules"),
        (ev.EvictionConfig(hard={"cpu": "1"}), "config.hard[cpu]"),
        (
            ev.EvictionConfig(minimum_reclaim={"memory.available": "-1"}),
            "config.minimum_reclaim[memory.available]",
        ),
        (
            ev.EvictionConfig(enforce_node_allocatable=["pods", "x"]),
            "config.enforce_node_allocatable[1]",
        ),
        (
            ev.EvictionConfig(pressure_transition_duration_ns=-1),
            "config.pressure_transition_duration_ns",
        ),
        (
            ev.EvictionConfig(max_pod_grace_period_duration_ns=-1),
            "config.max_pod_grace_period_duration_ns",
        ),
        (
            ev.EvictionConfig(max_pod_grace_period_duration_ns=1_500_000_000),
            "config.max_pod_grace_period_duration_ns",
        ),
        (ev.EvictionConfig(kubelet_configuration="x", use_defaults=True), "config.use_defaults"),
        (ev.EvictionConfig(kubelet_configuration="x"), "config.kubelet_configuration"),
        (
            ev.EvictionConfig(kubelet_configuration="a: 1"),
            "config.kubelet_configuration.apiVersion",
        ),
    ],
)
def test_a_refused_configuration_names_its_field(config: ev.EvictionConfig, field: str) -> None:
    """Whether the configuration is in fields or in a file."""
    with pytest.raises(FieldError) as caught:
        Caller(config)
    assert caught.value.field == field


def test_a_session_answers_the_rules_in_force() -> None:
    """Defaults filled in, and the same again where it is given back."""
    opened = Caller(ev.EvictionConfig(use_defaults=True)).opened
    assert opened.config.rules == "v1.32"
    assert opened.config.pressure_transition_duration_ns == 300 * S
    assert opened.config.local_storage_isolation
    assert (len(opened.thresholds), opened.resumable) == (5, True)
    assert Caller(opened.config).opened.config == opened.config


def test_a_failed_kill_is_answered_also_after_a_collection() -> None:
    """The step has kill_fails, and its evictions kill_failed."""
    caller = Caller(ev.EvictionConfig(hard={"nodefs.available": "10Gi"}))
    node_fs = ev.FsStats(available_bytes=GI, capacity_bytes=100 * GI)
    observations = ev.Observations(node_fs=node_fs)
    step = pb.Step(
        time_ns=0, node_name="n", observations=observations, pods=[_pod("a")], kill_fails=True
    )
    need = caller.step(step).need_reclaim
    assert (need.containers, need.images) == (True, True)
    assert caller.state().awaits_reclaim
    with pytest.raises(PreconditionError):
        caller.step(step)
    answer = caller.resume(pb.Resume(node_name="n", observations=observations))
    assert [eviction.kill_failed for eviction in answer.step.evictions] == [True]
    with pytest.raises(PreconditionError):
        caller.resume(pb.Resume(node_name="n"))


def test_a_continuation_of_an_unknown_node_is_not_found() -> None:
    """It was neither configured nor stepped."""
    with pytest.raises(NotFoundError):
        Caller(HARD).resume(pb.Resume(node_name="n"))


def test_a_failed_look_at_the_file_systems_is_answered_as_an_error() -> None:
    """Until they have been inspected once."""
    caller = Caller(HARD)
    step = _step(0, 0.5, "a")
    step.disk_info_failed = True
    result = caller.step(step).step
    assert result.error.startswith("eviction manager: failed to get HasDedicatedImageFs")
    assert (result.quiet, _under(result.conditions)) == (False, [])


def test_remaining_thresholds_keep_their_state_when_others_change() -> None:
    """A node under pressure remains so."""
    caller = Caller(HARD)
    caller.step(_step(0, 0.5))
    answer = caller.configure(ev.EvictionConfig(hard={"memory.available": "2Gi"}))
    assert [threshold.quantity for threshold in answer.thresholds] == ["2Gi"]
    assert _under(caller.state().conditions) == ["MemoryPressure"]
    assert list(caller.state().first_observed) == []


def test_a_longer_transition_brings_a_condition_back_also_on_a_calm_node() -> None:
    """The short way for calm nodes must not hide what a full step would find."""
    caller = Caller(HARD)
    for at_s, available_gi in ((0, 0.5), (400, 4), (410, 4)):
        answer = caller.step(_step(at_s, available_gi))
    assert answer.step.quiet
    config = ev.EvictionConfig(pressure_transition_duration_ns=1000 * S)
    config.MergeFrom(HARD)
    caller.configure(config)
    result = caller.step(_step(420, 4)).step
    assert (result.quiet, _under(result.conditions)) == (False, ["MemoryPressure"])


def test_a_live_session_dates_a_step_on_arrival(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replay's session never does."""
    monkeypatch.setattr("time.time_ns", lambda: 7 * S)
    live, replayed = Caller(HARD, live=True), Caller(HARD)
    undated = _step(0, 4)
    undated.ClearField("time_ns")
    live.step(undated)
    with pytest.raises(FieldError, match=r"operations\[0\]\.step\.time_ns: is required"):
        replayed.step(undated)
    replayed.step(_step(0, 4))
    assert (live.state().time_ns, replayed.state().time_ns) == (7 * S, 0)


def test_a_batch_with_too_large_an_answer_is_done_in_part() -> None:
    """The rest, sent again, has the results of operations that are sent one by one."""
    config = ev.EvictionConfig(hard={"memory.available": "1Gi"})
    operations, caller, single = large_batch(), Caller(config), Caller(config)
    one_by_one = [single.send(operation).results[0] for operation in operations]
    assert sum(answer.ByteSize() for answer in one_by_one) > PART_BYTES
    results: list[pb.OperationResult] = []
    answers = 0
    while len(results) < len(operations):
        answer = caller.send(*operations[len(results) :])
        assert answer.applied == len(answer.results) > 0
        assert answer.ByteSize() < MESSAGE_BYTES_MAX
        results += answer.results
        answers += 1
    assert 1 < answers < len(operations)
    assert results == one_by_one
    assert caller.states() == single.states()
    assert samples(caller.servicer.collect) == samples(single.servicer.collect)


def test_a_repeated_batch_that_was_done_in_part_is_answered_as_before() -> None:
    """What was left out is not done by it."""
    caller = Caller(ev.EvictionConfig(hard={"memory.available": "1Gi"}))
    operations = large_batch()
    answer, before = caller.send(*operations), caller.states()
    caller.sequence -= 1
    assert caller.send(*operations) == answer
    assert caller.states() == before
    assert answer.applied < len(operations)
