"""Which pods kubelets reject, with which reasons, and what becomes of their controllers."""

from __future__ import annotations

import pytest

from replay.state_codec import dump_parts, restore_parts
from replay.world.api.cluster import Cluster
from replay.world.kubelet.critical_pods import NodePod, NotEnough, victims
from replay.world.loop.replay import Limits, Replay
from replay.world.models import Models
from reprieve.kube.v1beta1 import pod_pb2
from services.kube.pod import PodPhase
from tests import builders
from tests.unit.world.builders import (
    S,
    World,
    bind,
    create,
    create_pod,
    make_node,
    make_replica_set,
    update,
)
from tests.unit.world.test_node_lives import FAIL, RECOVER, action
from tests.unit.world.test_replay import FakeScheduler, Silent, added, at, bind_all, play

MS = S // 1000


def pod(name: str, cpu: str = "1", **more: str) -> builders.PodBuilder:
    """Return a pod that requests so much CPU."""
    made = builders.make_pod(name).uid(f"uid-{name}")
    return made.container("c", requests={"cpu": cpu, **more})


def for_os(name: str, cpu: str = "1") -> pod_pb2.Pod:
    """Return a pod that needs an operating system."""
    message = pod("b", cpu).message()
    message.spec.os.name = name
    return message


def world(*pods: pod_pb2.Pod) -> World:
    """Return a world with node "n" of 4 CPUs, to which the pods are bound one after the other."""
    made = World()
    made.feed(0, create(make_node()))
    for message in pods:
        add(made, message)
    return made


def add(made: World, message: pod_pb2.Pod, now_ns: int = 0) -> None:
    """Create a pod and let the scheduler bind it to node "n"."""
    made.feed(now_ns, create_pod(message))
    if not message.spec.node_name:
        made.outcomes.apply(now_ns, [bind(message.metadata.uid, "n")])
    made.run_until(now_ns)


def verdict(made: World, name: str) -> tuple[str, str]:
    """Return a pod's phase and reason."""
    status = made.pod(name).message.status
    return status.phase, status.reason


def test_a_pod_that_exceeds_the_nodes_cpu_is_rejected_and_holds_no_room() -> None:
    """As OutOfcpu, in upstream's words; the next one that fits runs."""
    made = world(pod("a", "3").message(), pod("b", "2").message(), pod("c", "1").message())
    assert verdict(made, "a") == ("Running", "")
    assert verdict(made, "b") == ("Failed", "OutOfcpu")
    assert made.pod("b").message.status.message == (
        "Pod was rejected: Node didn't have enough resource: cpu, requested: 2000, used: 3000, "
        "capacity: 4000"
    )
    assert verdict(made, "c") == ("Running", "")


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (pod("b", memory="5Gi").message(), "OutOfmemory"),
        (pod("b", **{"example.com/gpu": "3"}).message(), "OutOfexample.com/gpu"),
        (pod("b").node_selector({"disk": "ssd"}).message(), "NodeAffinity"),
        (pod("b").host_port(8080).message(), "NodePorts"),
        (
            pod("b", "9").labels({"kubernetes.io/os": "windows"}).message(),
            "PodOSSelectorNodeLabelDoesNotMatch",
        ),
        (for_os("windows", "9"), "PodOSNotSupported"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_reason_is_that_of_the_first_predicate_that_fails(
    message: pod_pb2.Pod, reason: str
) -> None:
    """On a node whose port 8080 is taken."""
    node = builders.make_node("n").capacity({"cpu": "4", "memory": "4Gi", "example.com/gpu": "2"})
    made = World()
    made.feed(0, create(node.message()))
    add(made, pod("a").host_port(8080).message())
    add(made, message)
    assert verdict(made, "a") == ("Running", "")
    assert verdict(made, "b") == ("Failed", reason)


class _StoppedError(Exception):
    """The run is left where it stands."""


def test_a_kubelets_sums_are_made_again_after_a_resume() -> None:
    """They are not saved: the pods and host ports on the node are what they follow from."""
    records = [
        create(make_node()),
        create_pod(pod("a", "3").host_port(80).message()),
        at(10 * S, create_pod(pod("b", "2").message())),
        at(20 * S, create_pod(pod("c").host_port(80).message())),
        at(30 * S, create_pod(pod("d").message())),
    ]

    def new() -> Replay:
        return Replay(
            FakeScheduler(bind_all), None, models=Models(), sink=lambda _: None, observer=Silent()
        )

    def stop(now_ns: int, _: Cluster) -> None:
        if now_ns == 0:
            raise _StoppedError

    saved, resumed = new(), new()
    with pytest.raises(_StoppedError):
        saved.run(iter(records), Limits(progress=stop))
    restore_parts(resumed, dump_parts(saved))
    resumed.run(iter(records), Limits())
    pods = (record.message for record in resumed.cluster.pods.values())
    statuses = {message.metadata.name: message.status for message in pods}
    assert {name: (status.phase, status.reason) for name, status in statuses.items()} == {
        "a": ("Running", ""),
        "b": ("Failed", "OutOfcpu"),
        "c": ("Failed", "NodePorts"),
        "d": ("Running", ""),
    }
    assert statuses["b"].message.endswith("requested: 2000, used: 3000, capacity: 4000")


@pytest.mark.parametrize(
    ("node_os", "pod_os", "expected"),
    [
        ("", "linux", ("Running", "")),
        ("windows", "windows", ("Running", "")),
        ("windows", "linux", ("Failed", "PodOSNotSupported")),
    ],
)
def test_the_nodes_operating_system_is_its_labels_and_linux_without_one(
    node_os: str, pod_os: str, expected: tuple[str, str]
) -> None:
    """A trace has the label of a kubelet, and not its operating system."""
    made = World()
    node = builders.make_node("n").capacity(cpu="4")
    if node_os:
        node.label("kubernetes.io/os", node_os)
    made.feed(0, create(node.message()))
    add(made, for_os(pod_os))
    assert verdict(made, "b") == expected


def test_a_pod_beyond_the_nodes_places_is_rejected() -> None:
    """The places come before all other resources."""
    made = World()
    made.feed(0, create(builders.make_node("n").capacity(cpu="1", pods="1").message()))
    add(made, pod("a", "1").message())
    add(made, pod("b", "1").message())
    assert verdict(made, "b") == ("Failed", "OutOfpods")


def test_a_no_execute_taint_rejects_and_a_no_schedule_taint_does_not() -> None:
    """A kubelet is not interested in the latter."""
    made = World()
    node = builders.make_node("n").capacity(cpu="4").taint("k", effect="NoSchedule")
    made.feed(0, create(node.message()))
    add(made, pod("a").message())
    assert verdict(made, "a") == ("Running", "")
    made.feed(0, update(node.taint("x", effect="NoExecute").message()))
    add(made, pod("b").message())
    assert verdict(made, "b") == ("Failed", "TaintToleration")
    text = made.pod("b").message.status.message
    assert text.endswith(
        "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate"
    )


def test_an_extended_resource_that_the_node_lacks_altogether_is_not_checked() -> None:
    """It may be one of the cluster, which the kubelet does not know."""
    made = world(pod("a", **{"example.com/license": "1"}).message())
    assert verdict(made, "a") == ("Running", "")


def test_a_terminating_pod_holds_its_room_until_its_containers_have_stopped() -> None:
    """And not for longer."""
    made = world(pod("a", "4").grace_period(30).message())
    made.lifecycle.delete(S, made.pod("a"), 30, "deleted")
    add(made, pod("b", "1").message(), 2 * S)
    assert verdict(made, "b") == ("Failed", "OutOfcpu")
    made.run_until(40 * S)
    add(made, pod("c", "4").message(), 41 * S)
    assert verdict(made, "c") == ("Running", "")


def test_pods_that_run_when_the_recording_begins_are_admitted_and_counted() -> None:
    """Although they exceed the node."""
    running = [pod(name, "3").node("n").phase(PodPhase.RUNNING).message() for name in ("a", "b")]
    made = world(*running, pod("c", "1").message())
    assert [verdict(made, name)[0] for name in ("a", "b", "c")] == ["Running", "Running", "Failed"]


def test_a_mirror_pod_is_not_checked() -> None:
    """Its kubelet runs it already."""
    mirror = pod("b", "4").node("n").annotations({"kubernetes.io/config.mirror": "x"})
    made = world(pod("a", "4").message(), mirror.message())
    assert verdict(made, "b") == ("Running", "")


def test_a_changed_request_counts_from_then_on() -> None:
    """The pod's message is another one after a resize."""
    made = world(pod("a", "1").message())
    made.feed(S, update(pod("a", "4").node("n").message()))
    add(made, pod("b", "1").message(), S)
    assert verdict(made, "b") == ("Failed", "OutOfcpu")


def test_a_node_that_is_created_again_is_read_again() -> None:
    """Its resourceVersion begins anew."""
    made = world(pod("a", "1").message())
    made.cluster.remove_node(S, "n")
    made.feed(S, create(builders.make_node("n").capacity(cpu="16").message()))
    add(made, pod("b", "15").message(), S)
    assert verdict(made, "b") == ("Running", "")


def test_a_critical_pod_is_admitted_over_others_when_they_have_stopped() -> None:
    """Of Burstable and BestEffort pods only the former request what is missing."""
    critical = pod("c", "2").priority(2_000_000_000).message()
    made = world(pod("a", "3").grace_period(10).message(), critical)
    assert verdict(made, "c") == ("Pending", "")
    assert made.log()[-1] == (0, "evicted", "a")
    made.run_until(30 * S)
    assert verdict(made, "a") == ("Failed", "Preempting")
    assert verdict(made, "c") == ("Running", "")


def test_a_critical_pod_that_no_victims_help_is_rejected() -> None:
    """With the error of the kubelet's preemption."""
    made = world(pod("c", "5").priority(2_000_000_000).message())
    assert verdict(made, "c") == ("Failed", "UnexpectedAdmissionError")
    assert made.pod("c").message.status.message.endswith("[(res: cpu, q: 1000), ]")


@pytest.mark.parametrize("fails", [False, True])
def test_a_placement_is_judged_by_the_node_at_the_binding(fails: bool) -> None:
    """The node loses a label while its kubelet is silent, or before a wrong binding."""
    labelled = make_node()
    labelled.metadata.labels["disk"] = "ssd"
    made = World()
    made.feed(0, create(labelled), create(make_node("other")))
    changes = [action(FAIL)] if fails else [update(make_node())]
    made.feed(S, *changes)
    add(made, pod("a").node_selector({"disk": "ssd"}).message(), 2 * S)
    if fails:
        made.feed(3 * S, update(make_node()))
        made.feed(20 * S, action(RECOVER))
        made.run_until(40 * S)
    assert verdict(made, "a") == ("Failed", "NodeAffinity")
    decisions = [decision for _, decision, _ in made.log()]
    assert ("invalid_placement" in decisions) is not fails


def test_lower_classes_give_first_and_the_nearest_pod_goes() -> None:
    """A Guaranteed pod goes only for what the others cannot free."""
    pods = [
        NodePod("g-small", "Guaranteed", {"cpu": 1000}),
        NodePod("g-big", "Guaranteed", {"cpu": 3000}),
        NodePod("b-near", "Burstable", {"cpu": 600}),
        NodePod("b-far", "Burstable", {"cpu": 200}),
        NodePod("none", "BestEffort", {}),
    ]

    def chosen(cpu: int) -> list[str] | object:
        uids = victims({"cpu": cpu}, pods)
        return uids if isinstance(uids, NotEnough) else [victim.uid for victim in uids]

    assert chosen(500) == ["b-near"]
    assert chosen(800) == ["b-near", "b-far"]
    assert chosen(1500) == ["b-near", "g-small"]
    assert chosen(5000) == NotEnough({"cpu": 200})


def test_replacements_of_rejected_pods_wait_longer_and_longer_until_a_run_ends() -> None:
    """At once, then after 5 ms, 10 ms and so on; the run ends before the first wait of 10 min.

    The node has room for one of the two pods.
    """
    replica_set = make_replica_set(replicas=2)
    replica_set.spec.template.spec.containers[0].resources.requests["cpu"] = "3"
    scheduler, replay, _ = play(
        bind_all, [at(0, create(make_node())), at(0, create(replica_set))], looks_ahead=True
    )
    times = [round_.time_ns for round_ in scheduler.rounds for _ in added(round_)]
    assert times[:3] == [0, 0, 0]
    assert [at_ns // MS for at_ns in times[3:7]] == [5, 15, 35, 75]
    assert len(times) == 2 + 18
    phases = [pod.message.status.phase for pod in replay.cluster.pods.values()]
    assert (phases.count("Running"), phases.count("Failed")) == (1, 19)
    assert ("rejected",) in {(kind,) for kind, _ in replay.journal.notes}
