"""Pods that have ended, and how many of them a cluster keeps."""

from __future__ import annotations

from replay.world.api.cluster import Changed
from replay.world.controllers.pod_gc import PodGarbageCollection
from replay.world.loop.replay import Limits, Replay, ReplayEnd
from replay.world.models import Models
from replay.world.timeline import Action, ActionKind
from reprieve.trace.v1beta1 import trace_pb2
from tests.unit.world.builders import S, World, create, create_pod, delete, make_node, make_pod
from tests.unit.world.test_replay import FakeScheduler, Silent, at, bind_all


def world_with_gc(threshold: int) -> tuple[World, PodGarbageCollection]:
    """Return a world with one node, and its collection of ended pods."""
    world = World(Models(ended_pods_max=threshold))
    world.feed(0, create(make_node()))
    gc = PodGarbageCollection(world.state, world.lifecycle)
    return world, gc


def end(world: World, at_s: int, *names: str, reason: str = "") -> None:
    """Let pods come at a time that have ended already, failed for a reason."""
    for name in names:
        pod = make_pod(name, node="n")
        pod.status.phase, pod.status.reason = "Failed", reason
        world.feed(at_s * S, create_pod(pod))


def test_ended_pods_up_to_the_threshold_stay() -> None:
    """And nothing is planned for their sake."""
    world, gc = world_with_gc(2)
    end(world, 1, "a", "b")
    gc.reconcile(S, Changed())
    assert (world.timeline.next_ns(), world.names()) == (None, ["a", "b"])


def test_the_look_is_on_the_next_whole_twenty_seconds_and_planned_once() -> None:
    """However many pods end until then."""
    world, gc = world_with_gc(1)
    end(world, 21, "a", "b")
    gc.reconcile(21 * S, Changed())
    end(world, 39, "c")
    gc.reconcile(39 * S, Changed())
    assert world.timeline.planned_ns(ActionKind.POD_GC, "") == 40 * S
    end(world, 60, "d")
    assert len(world.timeline) == 1


def test_evicted_pods_go_first_and_then_the_oldest() -> None:
    """Names settle what whole seconds leave open."""
    world, gc = world_with_gc(2)
    end(world, 1, "old-b", "old-a")
    end(world, 3, "evicted", reason="Evicted")
    end(world, 2, "young")
    gc.act(20 * S, Action(ActionKind.POD_GC, ""))
    assert world.names() == ["old-b", "young"]
    assert [entry.observed.removed.cause for entry in world.entries] == ["collected", "collected"]


def test_times_within_one_second_are_equal() -> None:
    """As an API server keeps them."""
    world, gc = world_with_gc(1)
    for name, at_ns in (("z", S), ("a", S + 1)):
        pod = make_pod(name, node="n")
        pod.status.phase = "Succeeded"
        world.feed(at_ns, create_pod(pod))
    gc.act(20 * S, Action(ActionKind.POD_GC, ""))
    assert world.names() == ["z"]


def test_a_pod_that_was_deleted_does_not_count() -> None:
    """Nor does one that runs."""
    world, gc = world_with_gc(1)
    end(world, 1, "a", "b")
    world.feed(2 * S, create_pod(make_pod("runs", node="n", ready=True)), delete("Pod", "a"))
    gc.act(20 * S, Action(ActionKind.POD_GC, ""))
    assert world.names() == ["b", "runs"]


def test_without_pod_gc_all_ended_pods_are_kept() -> None:
    """With a threshold of 0, as upstream."""
    world, gc = world_with_gc(0)
    end(world, 1, "a", "b")
    gc.reconcile(S, Changed())
    gc.act(20 * S, Action(ActionKind.POD_GC, ""))
    assert (world.timeline.next_ns(), world.names()) == (None, ["a", "b"])


def test_a_replay_reports_collected_pods_to_its_scheduler() -> None:
    """At the next look, even where nothing else is left to do; the log keeps how it ended."""
    scheduler, log = FakeScheduler(bind_all), list[trace_pb2.Decision]()
    models = Models(ended_pods_max=1)
    replay = Replay(scheduler, None, models=models, sink=log.append, observer=Silent())
    pods = [at(i * S, create_pod(make_pod(f"p{i}"), service_duration_ns=S)) for i in range(3)]
    assert replay.run(iter([create(make_node()), *pods]), Limits()) is ReplayEnd.FINISHED
    deleted = [
        (round_.time_ns, event.remove.name)
        for round_ in scheduler.rounds
        for event in round_.events
        if event.HasField("remove")
    ]
    assert deleted == [(20 * S, "p0"), (20 * S, "p1")]
    assert [
        entry.observed.finished.phase for entry in log if entry.observed.HasField("finished")
    ] == ["Succeeded"] * 3
