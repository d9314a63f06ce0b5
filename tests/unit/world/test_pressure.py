"""When nodes are stepped, and how the answers are used."""

from __future__ import annotations

from collections.abc import Sequence

from replay.world.controller import Ending
from replay.world.kubelet.annotations import UsageRule, parse_growth
from replay.world.loop.replay import Limits, Replay, ReplayEnd
from replay.world.models import Models
from reprieve.eviction.v1beta1 import eviction_service_pb2
from reprieve.kube.v1beta1 import node_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2
from reprieve.trace.v1beta1 import trace_pb2
from tests.unit.world.builders import (
    S,
    World,
    create,
    create_pod,
    delete,
    make_node,
    make_pod,
    update,
)

GIB = 1 << 30
TYPES = ("MemoryPressure", "DiskPressure", "PIDPressure")
TAINT = "node.kubernetes.io/memory-pressure"


class FakeKubelets:
    """Evicts the first pod while less than 1 GiB is left; the condition holds for 30 s more.

    `calms` says from which amounts on steps change nothing, `notifies` at which the kernel tells.
    """

    def __init__(
        self,
        *,
        evicts: bool = True,
        reclaims: bool = False,
        calms: bool = False,
        notifies: bool = False,
    ) -> None:
        self.evicts, self.reclaims = evicts, reclaims
        self.calms, self.notifies = calms, notifies
        self.steps: list[eviction_service_pb2.Step] = []
        self.removed: list[str] = []
        self.asked: list[tuple[str, str]] = []
        self._known: dict[str, str] = {}
        self._met_ns: dict[str, int] = {}

    def apply(
        self, operations: Sequence[eviction_service_pb2.Operation]
    ) -> Sequence[eviction_service_pb2.OperationResult]:
        """Answer each operation but removals."""
        results = []
        for operation in operations:
            match operation.WhichOneof("operation"):
                case "step":
                    self.steps.append(operation.step)
                    results.append(self._result(operation.step))
                case "resume":
                    result = eviction_service_pb2.OperationResult(
                        node_name=operation.resume.node_name
                    )
                    result.step.quiet = True
                    results.append(result)
                case "admit":
                    results.append(self._admit(operation.admit))
                case _:
                    self.removed.append(operation.remove_node)
        return results

    def _admit(self, admit: eviction_service_pb2.Admit) -> eviction_service_pb2.OperationResult:
        """Refuse pods that request nothing."""
        pod = admit.pod
        self.asked.append((admit.node_name, pod.metadata.name))
        result = eviction_service_pb2.OperationResult(node_name=admit.node_name)
        admission = result.admission
        admission.admit = any(container.resources.requests for container in pod.spec.containers)
        if not admission.admit:
            admission.reason, admission.message = "Evicted", "The node is low. "
        return result

    def _result(self, step: eviction_service_pb2.Step) -> eviction_service_pb2.OperationResult:
        answer = eviction_service_pb2.OperationResult(node_name=step.node_name)
        if self.reclaims:
            answer.need_reclaim.images = True
            return answer
        for pod in step.pods:
            self._known[pod.metadata.uid] = pod.metadata.name
        active = [pod.metadata.uid for pod in step.pods] + list(step.active_uids)
        met = step.observations.memory.available_bytes < GIB
        if met:
            self._met_ns[step.node_name] = step.time_ns
        last_ns = self._met_ns.get(step.node_name, -100 * S)
        holds = step.time_ns - last_ns < 30 * S
        result = answer.step
        result.next_step_time_ns = step.time_ns + 10 * S
        result.quiet = not holds and step.time_ns - last_ns > 40 * S
        for type_ in () if result.quiet else TYPES:
            status = "True" if holds and type_ == "MemoryPressure" else "False"
            result.conditions.add(type=type_, status=status, reason="r", message="m")
        if holds:
            result.condition_last_observed.add(name="MemoryPressure", time_ns=last_ns)
        if met and self.evicts and active:
            evicted = result.evictions.add(reason="Evicted", phase="Failed", message="low")
            evicted.pod.uid, evicted.signal = active[0], "memory.available"
            evicted.grace_period_override_duration_ns = S
        if result.quiet and self.calms and not met:
            result.calm.min_available.add(signal="memory.available", amount=GIB)
        if self.notifies:
            result.notify_at.add(signal="memory.available", amount=GIB)
        return answer


class NoRoom:
    """A scheduler that decides nothing."""

    takes_windows = False

    def __init__(self) -> None:
        self.rounds: list[scheduler_pb2.Round] = []

    def send_round(self, round_: scheduler_pb2.Round, window: object = ()) -> None:  # noqa: ARG002
        """Take a message."""
        self.rounds.append(round_)

    def receive_outcomes(self) -> scheduler_pb2.RoundOutcomes:
        """Answer it."""
        return scheduler_pb2.RoundOutcomes()

    def round_sent(self, round_: scheduler_pb2.Round) -> None:
        """Observe nothing."""

    def outcomes(self, round_: scheduler_pb2.Round, outcomes: scheduler_pb2.RoundOutcomes) -> None:
        """Observe nothing."""

    def nodes(self) -> list[node_pb2.Node]:
        """Return the nodes as they were sent, in order."""
        sent = [event for round_ in self.rounds for event in round_.events]
        return [
            (event.add if event.HasField("add") else event.update).node
            for event in sent
            if event.add.HasField("node") or event.update.HasField("node")
        ]


def usage(*segments: tuple[int, int], id_: int = 1, node: str = "") -> trace_pb2.Record:
    """Return a profile of (offset in s, memory in MiB)."""
    record = trace_pb2.Record()
    record.usage.id, record.usage.node_name = id_, node
    for offset_s, mib in segments:
        record.usage.segments.add(offset_duration_ns=offset_s * S, memory_bytes=mib << 20)
    return record


def at(second: int, record: trace_pb2.Record) -> trace_pb2.Record:
    """Return the record with its time."""
    record.time_ns = second * S
    return record


def play(
    kubelets: FakeKubelets,
    *records: trace_pb2.Record,
    until_s: int | None = None,
    rules: Sequence[UsageRule] = (),
) -> tuple[Replay, NoRoom, ReplayEnd, list[trace_pb2.Decision]]:
    """Play records on a node "n" of 4 GiB."""
    scheduler, entries = NoRoom(), list[trace_pb2.Decision]()
    models = Models(pod_gc_ns=0)
    replay = Replay(
        scheduler, kubelets, models=models, sink=entries.append, observer=scheduler, usage=rules
    )
    until_ns = None if until_s is None else until_s * S
    end = replay.run(iter([create(make_node()), *records]), Limits(until_ns=until_ns))
    return replay, scheduler, end, entries


def pod(name: str, usage_id: int = 1, **life: int) -> trace_pb2.Record:
    """Return the creation of a pod on "n"."""
    return create_pod(make_pod(name, node="n"), usage_id=usage_id, **life)


def seconds(kubelets: FakeKubelets) -> list[int]:
    """Return when nodes were stepped."""
    return [step.time_ns // S for step in kubelets.steps]


def test_a_node_whose_usage_is_not_known_is_never_stepped() -> None:
    """Nothing is observed of it."""
    kubelets = FakeKubelets()
    play(kubelets, pod("a", usage_id=0))
    assert kubelets.steps == []


def test_a_node_is_stepped_on_a_grid_of_10_s_after_what_it_observes_has_changed() -> None:
    """A pod that starts or ends, and each change of what it uses; nothing else."""
    kubelets = FakeKubelets()
    records = [usage((0, 100), (33, 200)), at(4, pod("a", service_duration_ns=60 * S))]
    _, _, end, _ = play(kubelets, *records)
    assert (seconds(kubelets), end) == ([10, 40, 70], ReplayEnd.FINISHED)
    memory = [step.observations.memory.available_bytes >> 20 for step in kubelets.steps]
    assert memory == [3996, 3896, 4096]


def test_a_pod_is_sent_whole_once_and_by_its_uid_then() -> None:
    """All of them again where one is new."""
    kubelets = FakeKubelets()
    records = [usage((0, 100), (10, 200)), pod("a"), at(15, pod("b"))]
    play(kubelets, *records)
    sent = [
        ([pod.metadata.name for pod in step.pods], list(step.active_uids))
        for step in kubelets.steps
    ]
    assert sent[:3] == [(["a"], []), ([], ["uid-a"]), (["a", "b"], [])]


def test_a_node_under_pressure_gets_condition_and_taint_and_loses_them_again() -> None:
    """A pod goes, the next step comes once it is cleaned up, and the condition after its period."""
    kubelets = FakeKubelets()
    records = [usage((0, 100), (20, 3500)), pod("a"), usage((0, 100), id_=2), pod("b", usage_id=2)]
    replay, scheduler, end, entries = play(kubelets, *records)
    assert seconds(kubelets) == [0, 20, 22, 32, 42, 52, 62]
    changes = [
        (entry.time_ns // S, entry.observed.condition_changed.status)
        for entry in entries
        if entry.observed.HasField("condition_changed")
    ]
    assert changes == [(20, "True"), (52, "False")]
    taints = [[taint.key for taint in node.spec.taints] for node in scheduler.nodes()]
    assert taints == [[], [TAINT], []]
    assert end is ReplayEnd.FINISHED
    evicted = replay.cluster.pods["uid-a"].message.status
    assert (evicted.phase, evicted.reason, evicted.message) == ("Failed", "Evicted", "low")
    assert replay.cluster.pods["uid-b"].message.status.phase == "Running"


def test_a_pressure_without_relief_is_stepped_and_does_not_keep_a_replay_running() -> None:
    """With a limit the steps go on to it."""
    kubelets = FakeKubelets(evicts=False)
    _, scheduler, end, _ = play(kubelets, usage((0, 3500)), pod("a"))
    assert (seconds(kubelets), end) == ([0], ReplayEnd.FINISHED)
    assert [len(node.spec.taints) for node in scheduler.nodes()] == [0, 1]
    kubelets = FakeKubelets(evicts=False)
    _, _, end, _ = play(kubelets, usage((0, 3500)), pod("a"), until_s=35)
    assert (seconds(kubelets), end) == ([0, 10, 20, 30], ReplayEnd.UNTIL)


def test_an_idle_step_matters_again_once_something_changes() -> None:
    """The pressure ends with the pod's work, and then the condition goes."""
    kubelets = FakeKubelets(evicts=False)
    play(kubelets, usage((0, 3500)), pod("a", service_duration_ns=25 * S))
    assert seconds(kubelets) == [0, 10, 20, 30, 40, 50, 60, 70]


def test_a_node_that_has_gone_is_forgotten() -> None:
    """It is stepped no more, and comes back without its past."""
    kubelets = FakeKubelets(evicts=False)
    records = [usage((0, 3500)), pod("a"), at(15, delete("Node", "n")), at(25, create(make_node()))]
    replay, _, end, _ = play(kubelets, *records)
    assert (kubelets.removed, end) == (["n"], ReplayEnd.FINISHED)
    assert seconds(kubelets) == [0, 10]
    assert list(replay.cluster.nodes["n"].spec.taints) == []


def test_a_users_update_keeps_the_condition_and_the_taint() -> None:
    """They are the kubelet's and the node controller's."""
    kubelets = FakeKubelets(evicts=False)
    records = [usage((0, 3500)), pod("a"), at(5, update(make_node(memory="4Gi")))]
    _, scheduler, _, _ = play(kubelets, *records)
    last = scheduler.nodes()[-1]
    assert [taint.key for taint in last.spec.taints] == [TAINT]
    assert [(condition.type, condition.status) for condition in last.status.conditions] == [
        ("MemoryPressure", "True")
    ]


def test_a_condition_that_the_trace_brings_is_noted_for_nothing_ends_it() -> None:
    """The eviction service does not know of it; one that has ended is no condition."""
    world = World()
    node = make_node()
    node.status.conditions.add(type="MemoryPressure", status="True")
    node.status.conditions.add(type="DiskPressure", status="False")
    world.feed(0, create(node), create(make_node("other")))
    world.pressure.conclude(Ending(at_ns=S, start_ns=0, is_finished=True, is_cut=False))
    notes = [text for kind, text in world.journal.notes if kind == "pressure"]
    assert [note.partition(":")[0] for note in notes] == [
        "node n has the condition MemoryPressure in the trace"
    ]


def test_usage_outside_pods_can_cause_node_pressure() -> None:
    """At each change of it, counted from its coming."""
    kubelets = FakeKubelets(evicts=False)
    play(kubelets, usage((0, 100), (20, 3500), (40, 100), node="n"))
    assert seconds(kubelets) == [0, 20, 30, 40, 50, 60, 70, 80]


def test_a_collection_is_answered_with_the_observations_after_it() -> None:
    """The same step continues; a replay frees nothing."""
    kubelets = FakeKubelets(reclaims=True)
    _, _, end, entries = play(kubelets, usage((0, 3500)), pod("a"))
    assert (seconds(kubelets), end) == ([0], ReplayEnd.FINISHED)
    assert [entry.observed.WhichOneof("observed") for entry in entries] == ["started"]


def test_without_an_eviction_service_nothing_is_stepped() -> None:
    """Though usage is known."""
    scheduler = NoRoom()
    replay = Replay(scheduler, None, models=Models(), sink=lambda _entry: None, observer=scheduler)
    records = [create(make_node()), usage((0, 3500), (5, 1)), pod("a")]
    assert replay.run(iter(records), Limits()) is ReplayEnd.FINISHED
    assert replay.now_ns == 0


def test_a_calm_node_is_not_stepped_until_resources_are_low() -> None:
    """Changes that leave enough, and the ends of long looks ahead, cost no step."""
    hours = 9
    changes = [(3600 * hour, 100 + hour) for hour in range(hours)]
    records = [usage(*changes, (3600 * hours + 3, 3500), (3600 * hours + 700, 100)), pod("a")]
    kubelets = FakeKubelets(calms=True, evicts=False)
    play(kubelets, *records)
    first = [step_s for step_s in seconds(kubelets) if step_s < 3600 * hours]
    assert first == [0]
    assert seconds(kubelets)[1] == 3600 * hours + 10


def test_a_node_that_shrinks_under_its_pods_is_stepped() -> None:
    """Its pods' usage is known, and what it leaves has changed."""
    kubelets = FakeKubelets(calms=True, evicts=False)
    play(kubelets, usage((0, 3000)), pod("a"), at(33, update(make_node(memory="3Gi"))), until_s=45)
    assert seconds(kubelets) == [0, 40]
    assert len(kubelets.steps[0].pods) == 1


def test_the_kernel_notifies_of_a_crossing_at_its_moment() -> None:
    """The pod goes then and not at the next poll; without notifications it goes at the poll."""
    records = [usage((0, 100), (33, 3500)), pod("a"), usage((0, 100), id_=2), pod("b", usage_id=2)]
    for notifies, evicted_s in ((True, 33), (False, 40)):
        kubelets = FakeKubelets(calms=True, notifies=notifies)
        _, _, _, entries = play(kubelets, *records)
        seconds = [entry.time_ns // S for entry in entries if entry.observed.HasField("evicted")]
        assert seconds == [evicted_s]


def test_a_notified_step_does_not_restart_the_loops_interval() -> None:
    """Once down and once up the kernel notifies; the loop comes round every 10 s all the same."""
    kubelets = FakeKubelets(calms=True, evicts=False, notifies=True)
    play(kubelets, usage((0, 100), (33, 3500), (36, 3600), (47, 100)), pod("a"))
    assert seconds(kubelets) == [0, 33, 40, 47, 50, 60, 70, 80, 90]


def test_a_crossing_while_the_loop_comes_round_is_one_step() -> None:
    """Nothing is observed twice at one moment."""
    kubelets = FakeKubelets(calms=True, evicts=False, notifies=True)
    play(kubelets, usage((0, 100), (40, 3500)), pod("a"), until_s=45)
    assert seconds(kubelets) == [0, 40]


def test_the_kernel_notifies_nothing_before_a_nodes_first_step() -> None:
    """The requested amounts follow from that step's observations."""
    kubelets = FakeKubelets(calms=True, evicts=False, notifies=True)
    play(kubelets, usage((0, 3500), (1, 100)), at(4, pod("a")), until_s=9)
    assert seconds(kubelets) == []


def bare(name: str) -> trace_pb2.Record:
    """Return the creation of a pod on "n" that requests nothing."""
    made = make_pod(name, node="n")
    for container in made.spec.containers:
        container.ClearField("resources")
    return create_pod(made)


def test_a_node_under_pressure_rejects_pods_that_its_kubelet_does_not_admit() -> None:
    """The pod fails in the kubelet's words and never runs; others are taken."""
    kubelets = FakeKubelets(evicts=False)
    records = [usage((0, 3500)), pod("a"), at(5, bare("late")), at(6, pod("other", usage_id=0))]
    replay, _, _, entries = play(kubelets, *records, until_s=8)
    assert kubelets.asked == [("n", "late"), ("n", "other")]
    refused = replay.cluster.pods["uid-late"]
    status = refused.message.status
    assert (status.phase, status.reason) == ("Failed", "Evicted")
    assert status.message == "Pod was rejected: The node is low. "
    assert refused.running_ns is None
    assert replay.cluster.pods["uid-other"].message.status.phase == "Running"
    ends = [entry.observed.object.name for entry in entries if entry.observed.HasField("finished")]
    assert ends == ["late"]


def test_a_node_without_pressure_admits_every_pod_without_a_request() -> None:
    """Nor is a pod asked about again that its kubelet has taken already."""
    kubelets = FakeKubelets(evicts=False)
    replay, _, _, _ = play(kubelets, usage((0, 100)), pod("a"), at(5, bare("late")), until_s=8)
    assert kubelets.asked == []
    assert replay.cluster.pods["uid-late"].message.status.phase == "Running"


def grows(name: str, value: str, resource: str = "memory") -> UsageRule:
    """Return what a pod is said to use."""
    growth = parse_growth(value)
    return UsageRule(resource=resource, growth=growth, namespace="default", name=name)


def mib_left(kubelets: FakeKubelets) -> list[tuple[int, int]]:
    """Return the second of each step, and the memory that it saw available."""
    return [
        (step.time_ns // S, step.observations.memory.available_bytes >> 20)
        for step in kubelets.steps
    ]


def test_a_pod_with_growing_usage_is_evicted_in_time() -> None:
    """3 GiB of 4 may be used; 100 MiB and 60 a minute are more in the 298th 10 s."""
    kubelets = FakeKubelets(calms=True)
    _, _, end, entries = play(kubelets, pod("a", 0), rules=[grows("a", "100Mi+60Mi/m")])
    evicted = [entry for entry in entries if entry.observed.HasField("evicted")]
    assert [entry.time_ns // S for entry in evicted] == [2980]
    assert mib_left(kubelets)[:2] == [(0, 3996), (2980, 1016)]
    assert end is ReplayEnd.FINISHED


def test_a_growth_without_a_start_is_added_to_the_traces_usage() -> None:
    """One with a start takes its place; a later rule that of an earlier one."""
    trace_records = [usage((0, 1000), (10, 1500)), pod("a")]
    seen = []
    for rules in ([grows("a", "+60Mi/m")], [grows("a", "7Mi"), grows("a", "200Mi+60Mi/m")]):
        kubelets = FakeKubelets()
        play(kubelets, *trace_records, until_s=25, rules=rules)
        seen.append([left for _, left in mib_left(kubelets)])
    assert seen == [[3096, 2586, 2576], [3896, 3886, 3876]]


def test_a_running_pods_usage_grows_from_the_start_of_the_replay() -> None:
    """Not from a start of weeks ago."""
    kubelets = FakeKubelets()
    made = make_pod("a", node="n", ready=True)
    play(kubelets, at(5000, create_pod(made)), until_s=5011, rules=[grows("a", "1Mi+6Mi/m")])
    assert mib_left(kubelets) == [(5000, 4095), (5010, 4094)]


def test_an_annotation_sets_a_pods_usage() -> None:
    """A rule takes its place; one that cannot be read refuses the pod."""
    made = make_pod("a", node="n")
    made.metadata.annotations["reprieve/usage-memory"] = "96Mi"
    seen = []
    for rules in ([], [grows("a", "196Mi")], [grows("a", "1Gi", "ephemeral-storage")]):
        kubelets = FakeKubelets()
        play(kubelets, create_pod(made), until_s=1, rules=rules)
        seen.append(mib_left(kubelets))
    assert seen == [[(0, 4000)], [(0, 3900)], [(0, 4000)]]
    made.metadata.annotations["reprieve/usage-memory"] = "lots"
    replay, _, _, _ = play(FakeKubelets(), create_pod(made))
    ((_, note),) = replay.journal.notes
    assert "[reprieve/usage-memory]: 'lots' is not a usage; write 200Mi" in note


def test_a_replay_ends_although_replacements_of_evicted_pods_grow_again() -> None:
    """Its owner makes one after the other, and each would be evicted."""
    kubelets = FakeKubelets(calms=True)
    owned = [make_pod(name, node="n", owner="web") for name in "ab"]
    rules = [grows(name, "2000Mi+120Mi/m") for name in "ab"]
    trace_records = [create_pod(owned[0]), at(1000, create_pod(owned[1]))]
    replay, _, end, entries = play(kubelets, *trace_records, rules=rules)
    evicted = [entry.time_ns // S for entry in entries if entry.observed.HasField("evicted")]
    assert (evicted, end) == ([540], ReplayEnd.FINISHED)
    assert "usage" in {kind for kind, _ in replay.journal.notes}
    _, _, _, entries = play(kubelets, *trace_records, rules=rules, until_s=5000)
    evicted = [entry.time_ns // S for entry in entries if entry.observed.HasField("evicted")]
    assert evicted == [540, 1542]
