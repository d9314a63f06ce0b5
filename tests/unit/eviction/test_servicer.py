"""The eviction servicer: what it remembers of pods, refuses and answers, without a network."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from reprieve.eviction.v1beta1 import eviction_pb2 as ev
from reprieve.eviction.v1beta1 import eviction_service_pb2 as pb
from reprieve.kube.v1beta1 import pod_pb2
from reprieve.session.v1beta1 import session_pb2
from services.eviction.servicer import EvictionServicer
from services.rpc.errors import FieldError, NotFoundError, PreconditionError

GI = 1 << 30
S = 1_000_000_000
HARD = ev.EvictionConfig(hard={"memory.available": "1Gi"}, local_storage_isolation=False)
NO_CONTEXT: Any = None


class Caller:
    """A session of a servicer of its own."""

    def __init__(self, config: ev.EvictionConfig, *, live: bool = False) -> None:
        self.servicer = EvictionServicer()
        request = pb.OpenRequest(config=config, live=live)
        self.opened = asyncio.run(self.servicer.Open(request, NO_CONTEXT))
        self.sequence = 0

    def stamp(self, sequence: int = 0) -> session_pb2.Stamp:
        """Return a stamp; 0 is a read's."""
        return session_pb2.Stamp(session=self.opened.session, epoch=1, sequence=sequence)

    def step(self, step: pb.Step) -> pb.StepAnswer:
        """Take a step; a refused one leaves the sequence as it is."""
        request = pb.SynchronizeRequest(stamp=self.stamp(self.sequence + 1), step=step)
        answer = asyncio.run(self.servicer.Synchronize(request, NO_CONTEXT)).answer
        self.sequence += 1
        return answer

    def resume(self, resume: pb.ResumeStep) -> pb.StepAnswer:
        """Go on with a step."""
        request = pb.ResumeRequest(stamp=self.stamp(self.sequence + 1), resume=resume)
        answer = asyncio.run(self.servicer.Resume(request, NO_CONTEXT)).answer
        self.sequence += 1
        return answer

    def configure(self, config: ev.EvictionConfig) -> pb.ConfigureResponse:
        """Give the node its thresholds."""
        self.sequence += 1
        request = pb.ConfigureRequest(stamp=self.stamp(self.sequence), node_name="n", config=config)
        return asyncio.run(self.servicer.Configure(request, NO_CONTEXT))

    def state(self) -> ev.NodeState:
        """Return the only node's state."""
        request = pb.DumpRequest(stamp=self.stamp())
        return asyncio.run(self.servicer.Dump(request, NO_CONTEXT)).nodes[0]


def _pod(name: str, **requests: str) -> pod_pb2.Pod:
    pod = pod_pb2.Pod()
    pod.metadata.uid = pod.metadata.name = name
    pod.spec.containers.add(name="c").resources.requests.update(requests)
    return pod


def _step(at_s: int, available_gi: float, *pods: str, active: tuple[str, ...] = ()) -> pb.Step:
    return pb.Step(
        node_name="n",
        at_ns=at_s * S,
        observations=ev.Observations(
            memory=ev.MemoryStats(
                available_bytes=int(available_gi * GI), working_set_bytes=4 * GI, time_ns=at_s * S
            )
        ),
        pods=map(_pod, pods),
        active_uids=active,
    )


def _evicted(answer: pb.StepAnswer) -> list[str]:
    return [each.pod.uid for each in answer.result.evictions]


def test_pods_are_remembered_by_uid_until_a_step_leaves_them_out() -> None:
    """New ones come first, then the known ones in the order given."""
    caller = Caller(HARD)
    caller.step(_step(0, 4, "a", "b"))
    answer = caller.step(_step(1, 0.5, "c", active=("b", "a")))
    assert [each.pod.uid for each in answer.result.ranking] == ["c", "b", "a"]
    caller.step(_step(2, 0.5, active=("a",)))
    with pytest.raises(FieldError) as caught:
        caller.step(_step(3, 0.5, active=("a", "b")))
    assert caught.value.field == "step.active_uids[1]"
    assert _evicted(caller.step(_step(3, 0.5, active=("a",)))) == ["a"]


def test_the_ranking_shows_its_first_ten() -> None:
    """Most likely first."""
    answer = Caller(HARD).step(_step(0, 0.5, *(f"p{number:02}" for number in range(12))))
    assert [each.pod.uid for each in answer.result.ranking] == [f"p{n:02}" for n in range(10)]


@pytest.mark.parametrize(
    ("step", "field"),
    [
        (pb.Step(summary_failed=True), "step.node_name"),
        (pb.Step(node_name="n"), "step.observations"),
        (_step(0, 4, ""), "step.pods[0].metadata.uid"),
        (_step(0, 4, "a", "a"), "step.pods"),
        (_step(0, 4, "a", active=("a",)), "step.active_uids[0]"),
        (
            pb.Step(node_name="n", observations=ev.Observations(pods=[ev.PodStats()])),
            "step.observations.pods[0].pod.uid",
        ),
        (
            pb.Step(node_name="n", summary_failed=True, pods=[_pod("a", memory="lots")]),
            "step.pods[0].spec.containers[0].resources.requests[memory]",
        ),
    ],
)
def test_a_refused_step_names_its_field_and_makes_no_node(step: pb.Step, field: str) -> None:
    """And does not take its sequence number."""
    caller = Caller(HARD)
    with pytest.raises(FieldError) as caught:
        caller.step(step)
    assert caught.value.field == field
    with pytest.raises(IndexError):
        caller.state()
    caller.step(_step(0, 4))


@pytest.mark.parametrize(
    ("config", "field"),
    [
        (ev.EvictionConfig(mode="v1.0"), "config.mode"),
        (ev.EvictionConfig(hard={"cpu": "1"}), "config.hard[cpu]"),
        (
            ev.EvictionConfig(minimum_reclaim={"memory.available": "-1"}),
            "config.minimum_reclaim[memory.available]",
        ),
        (
            ev.EvictionConfig(enforce_node_allocatable=["pods", "x"]),
            "config.enforce_node_allocatable[1]",
        ),
        (ev.EvictionConfig(pressure_transition_ns=-1), "config.pressure_transition_ns"),
        (ev.EvictionConfig(max_pod_grace_s=-1), "config.max_pod_grace_s"),
        (ev.EvictionConfig(kubelet_configuration="x", use_defaults=True), "config.use_defaults"),
        (ev.EvictionConfig(kubelet_configuration="x"), "config.kubelet_configuration"),
        (
            ev.EvictionConfig(kubelet_configuration="a: 1"),
            "config.kubelet_configuration.apiVersion",
        ),
    ],
)
def test_a_refused_configuration_names_its_field(config: ev.EvictionConfig, field: str) -> None:
    """Whether it comes in fields or in a file."""
    with pytest.raises(FieldError) as caught:
        Caller(config)
    assert caught.value.field == field


def test_a_session_tells_the_rules_in_force() -> None:
    """Defaults filled in, and the same again where it is given back."""
    opened = Caller(ev.EvictionConfig(use_defaults=True)).opened
    assert opened.config.mode == "v1.32"
    assert opened.config.pressure_transition_ns == 300 * S
    assert opened.config.local_storage_isolation
    assert (len(opened.thresholds), opened.resumable) == (5, True)
    assert Caller(opened.config).opened.config == opened.config


def test_a_failed_kill_is_told_also_after_a_collection() -> None:
    """The step says that it fails, its continuation answers so."""
    caller = Caller(ev.EvictionConfig(hard={"nodefs.available": "10Gi"}))
    node_fs = ev.FsStats(available_bytes=GI, capacity_bytes=100 * GI)
    observations = ev.Observations(node_fs=node_fs)
    step = pb.Step(node_name="n", observations=observations, pods=[_pod("a")], kill_fails=True)
    need = caller.step(step).need_reclaim
    assert (need.containers, need.images) == (True, True)
    assert caller.state().awaits_reclaim
    with pytest.raises(PreconditionError):
        caller.step(step)
    answer = caller.resume(pb.ResumeStep(node_name="n", observations=observations))
    assert [each.kill_failed for each in answer.result.evictions] == [True]
    with pytest.raises(PreconditionError):
        caller.resume(pb.ResumeStep(node_name="n"))


def test_a_continuation_of_an_unknown_node_is_not_found() -> None:
    """It was neither configured nor stepped."""
    with pytest.raises(NotFoundError):
        Caller(HARD).resume(pb.ResumeStep(node_name="n"))


def test_a_failed_look_at_the_file_systems_is_answered_as_an_error() -> None:
    """Until they have been looked at once."""
    caller = Caller(HARD)
    step = _step(0, 0.5, "a")
    step.disk_info_failed = True
    result = caller.step(step).result
    assert result.error.startswith("eviction manager: failed to get HasDedicatedImageFs")
    assert (result.quiet, list(result.conditions)) == (False, [])


def test_new_thresholds_keep_what_was_seen_of_the_old_ones() -> None:
    """A node that is under pressure stays so."""
    caller = Caller(HARD)
    caller.step(_step(0, 0.5))
    answer = caller.configure(ev.EvictionConfig(hard={"memory.available": "2Gi"}))
    assert [each.quantity for each in answer.thresholds] == ["2Gi"]
    assert list(caller.state().conditions) == ["MemoryPressure"]
    assert list(caller.state().first_observed) == []


def test_a_longer_transition_brings_a_condition_back_also_on_a_calm_node() -> None:
    """The short way for calm nodes must not hide what a full step would find."""
    caller = Caller(HARD)
    for at_s, available_gi in ((0, 0.5), (400, 4), (410, 4)):
        answer = caller.step(_step(at_s, available_gi))
    assert answer.result.quiet
    config = ev.EvictionConfig(pressure_transition_ns=1000 * S)
    config.MergeFrom(HARD)
    caller.configure(config)
    result = caller.step(_step(420, 4)).result
    assert (result.quiet, list(result.conditions)) == (False, ["MemoryPressure"])


def test_a_live_session_dates_a_step_on_arrival(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replay's session never does."""
    monkeypatch.setattr("time.time_ns", lambda: 7 * S)
    live, replayed = Caller(HARD, live=True), Caller(HARD)
    for caller in (live, replayed):
        caller.step(_step(0, 4))
    assert (live.state().at_ns, replayed.state().at_ns) == (7 * S, 0)
