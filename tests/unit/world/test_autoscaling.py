"""The cloud and the autoscaler's loop, with an autoscaler whose answers are written down."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

from replay.world.controller import Ending
from replay.world.controllers.autoscaling import cluster_autoscaler
from replay.world.controllers.autoscaling.cloud import Cloud
from replay.world.controllers.autoscaling.cluster_autoscaler import ClusterAutoscaler
from replay.world.controllers.autoscaling.node_groups import Autoscaling, NodeGroup
from replay.world.models import Models
from replay.world.response_checks import ContractError
from reprieve.autoscaler.v1beta1 import autoscaler_pb2 as pb
from reprieve.autoscaler.v1beta1 import autoscaler_service_pb2 as service_pb
from reprieve.kube.v1beta1 import meta_pb2, node_pb2, object_pb2
from tests.unit.world.builders import S, World, controller_of, create, create_pod, make_pod, update

POOL = {"pool": "a"}


def template() -> node_pb2.Node:
    """Return a node of the group."""
    node = node_pb2.Node()
    node.metadata.labels["pool"] = "a"
    for resources in (node.status.capacity, node.status.allocatable):
        resources["cpu"], resources["memory"], resources["pods"] = "4", "8Gi", "110"
    return node


def node(name: str) -> node_pb2.Node:
    """Return a node of the trace that is in the group."""
    made = template()
    made.metadata.name = name
    return made


class Scripted:
    """An autoscaler that returns prepared answers to its steps, and keeps what it was sent."""

    def __init__(self, answers: Iterable[service_pb.ApplyResponse] = ()) -> None:
        self.answers = list(answers)
        self.steps: list[service_pb.Step] = []
        self.changes: list[list[service_pb.Change]] = []

    def apply(
        self, changes: Sequence[service_pb.Change], step: service_pb.Step
    ) -> service_pb.ApplyResponse:
        """Return the next prepared answer; none is of a scan in which nothing was done."""
        self.steps.append(step)
        self.changes.append(list(changes))
        if step.HasField("start"):
            return service_pb.ApplyResponse()
        return self.answers.pop(0) if self.answers else report()

    def sent(self) -> list[str]:
        """Return what the last step was sent, as KIND NAME."""
        return [_shown(change) for change in self.changes[-1]]


def _shown(change: service_pb.Change) -> str:
    case = change.WhichOneof("kind")
    if case == "object":
        made = getattr(change.object, str(change.object.WhichOneof("object")))
        return f"{made.DESCRIPTOR.name} {made.metadata.name}"
    if case == "removed_object":
        return f"no {change.removed_object.object_kind} {change.removed_object.name}"
    group = change.node_group
    return f"group {group.name} {group.target_size}/{len(group.instances)}"


def report(**fields: object) -> service_pb.ApplyResponse:
    """Return the answer that ends a scan."""
    scan = pb.ScanReport(scale_down="NoCandidates", **fields)  # type: ignore[arg-type] # by name
    return service_pb.ApplyResponse(report=scan)


def call(**request: object) -> service_pb.ApplyResponse:
    """Return the answer that asks for something."""
    return service_pb.ApplyResponse(call=pb.Call(**request))  # type: ignore[arg-type] # by name


class Cluster:
    """A world with a group of one to three nodes, which has one."""

    def __init__(
        self,
        *answers: service_pb.ApplyResponse,
        models: Models | None = None,
        delays: tuple[int, ...] = (),
    ) -> None:
        self.backend = Scripted(answers)
        group = NodeGroup(
            name="a",
            min_size=1,
            max_size=3,
            template=template(),
            labels=POOL,
            provisioning_ns=delays,
        )
        self.world = World(
            models=models or Models(),
            autoscaler=self.backend,
            autoscaling=Autoscaling(config=pb.AutoscalerConfig(seed=7), groups=[group]),
        )
        self.loop = controller_of(self.world.manager, ClusterAutoscaler)
        self.cloud = controller_of(self.world.manager, Cloud)
        self.world.feed(0, create(node("n")))
        self.end(0)

    def end(self, now_ns: int) -> None:
        """End the rounds of an instant."""
        while self.loop.settle(now_ns):
            self.world.settle(now_ns)
        self.world.settle(now_ns)

    def until(self, until_ns: int) -> None:
        """Carry out what is planned up to a time, with the end of each instant."""
        timeline = self.world.timeline
        while (at_ns := timeline.next_ns()) is not None and at_ns <= until_ns:
            for action in timeline.take_due(at_ns):
                self.world.act(at_ns, action)
            self.world.settle(at_ns)
            self.end(at_ns)

    def outcome(self) -> service_pb.Outcome:
        """Return the outcome of the last call."""
        return next(
            step.outcome for step in reversed(self.backend.steps) if step.HasField("outcome")
        )


def increase(delta: int) -> service_pb.ApplyResponse:
    """Return the call for more nodes."""
    return call(increase_size=pb.IncreaseSize(group="a", delta=delta))


def scaled(*, to: int, pods: Sequence[str] = ()) -> service_pb.ApplyResponse:
    """Return the report of a scale-up."""
    up = pb.ScaleUpReport(result="Successful", triggered=pods)
    up.groups.add(group="a", from_size=1, to_size=to)
    return report(scale_up=up)


def test_the_autoscaler_starts_with_the_existing_state_and_scans_every_interval() -> None:
    """The first step has the whole cluster; a scan without changes has none to send."""
    cluster = Cluster()
    assert [step.WhichOneof("kind") for step in cluster.backend.steps] == ["start"]
    assert cluster.backend.sent() == ["group a 1/1", "Node n"]
    cluster.until(35 * S)
    assert [step.time_ns // S for step in cluster.backend.steps] == [0, 10, 20, 30]
    assert cluster.backend.sent() == []


def same_until(second: int) -> service_pb.ApplyResponse:
    """Return the answer that ends a scan, and says that no other one is needed before a time."""
    answer = report()
    answer.next_scan_time_ns = second * S
    return answer


def test_scans_that_would_be_the_same_are_left_out_until_something_changes() -> None:
    """After the one at 10 s none is needed before 55 s; a pod that comes at 31 s calls for one."""
    cluster = Cluster(same_until(55), same_until(60), same_until(70))
    cluster.until(30 * S)
    assert [step.time_ns // S for step in cluster.backend.steps] == [0, 10]
    cluster.world.feed(31 * S, create_pod(make_pod("p")))
    cluster.world.settle(31 * S)
    cluster.until(75 * S)
    assert [step.time_ns // S for step in cluster.backend.steps] == [0, 10, 40, 60, 70]


def test_a_scan_left_out_before_its_own_time_is_refused() -> None:
    """The time until which scans are the same is after the one that says it."""
    with pytest.raises(ContractError, match="next_scan_time_ns"):
        Cluster(same_until(10)).until(10 * S)


def test_each_new_node_has_one_of_its_group_s_delays() -> None:
    """With the same seed the same ones, whatever else the run has."""
    delays = (30 * S, 50 * S)

    def joined() -> list[tuple[int, str, str]]:
        cluster = Cluster(increase(2), scaled(to=3), delays=delays)
        cluster.until(100 * S)
        return cluster.world.log()[-2:]

    assert {at_s for at_s, _, _ in joined()} == {40, 60}
    assert joined() == joined()


def test_a_node_without_provider_id_and_without_conditions_is_shown_with_both() -> None:
    """Manifests leave them out; the node of the run stays as it is."""
    cluster = Cluster()
    shown = cluster.backend.changes[0][1].object.node
    assert shown.spec.provider_id == "reprieve://n"
    assert [(condition.type, condition.status) for condition in shown.status.conditions] == [
        ("Ready", "True")
    ]
    assert not cluster.world.cluster.nodes["n"].status.conditions


def test_an_increase_becomes_ready_nodes_after_the_delay() -> None:
    """They have the template's labels and a hostname of their own."""
    cluster = Cluster(increase(2), scaled(to=3))
    cluster.until(10 * S)
    assert cluster.backend.sent() == ["group a 3/3"]
    assert not cluster.outcome().refused
    assert set(cluster.world.cluster.nodes) == {"n"}
    cluster.until(100 * S)
    made = cluster.world.cluster.nodes["a-new-1"]
    assert made.metadata.labels["kubernetes.io/hostname"] == "a-new-1"
    assert made.metadata.labels["pool"] == "a"
    assert [(condition.type, condition.status) for condition in made.status.conditions] == [
        ("Ready", "True")
    ]
    assert cluster.world.log()[-3:] == [
        (10, "scaled_up", "a"),
        (100, "node_provisioned", "a-new-1"),
        (100, "node_provisioned", "a-new-2"),
    ]
    assert list(cluster.world.entries[-3].observed.scaled_up.node_names) == ["a-new-1", "a-new-2"]


def test_the_cloud_refuses_more_than_the_maximum() -> None:
    """Nothing is changed, and the log has the refusal."""
    cluster = Cluster(increase(3), report())
    cluster.until(10 * S)
    assert cluster.outcome().message == ("size increase too large: 1 + 3 is above the maximum of 3")
    entry = cluster.world.entries[-1]
    assert entry.observed.scaled_up.to_size == 4
    assert entry.refused == cluster.outcome().message
    assert cluster.cloud.target("a") == 1


def test_a_failed_instance_is_shown_with_its_error_and_can_be_deleted() -> None:
    """It never was a node, whose deletion would be recorded."""
    deletion = pb.DeleteNodes(group="a", provider_ids=["reprieve://a/a-new-1"])
    cluster = Cluster(
        increase(1),
        scaled(to=2),
        *[report()] * 8,
        report(),
        call(delete_nodes=deletion),
        report(),
        models=Models(node_failures_percent=100),
    )
    cluster.until(100 * S)
    sent = [change.node_group for change in cluster.backend.changes[-1]]
    assert [instance.error_code for instance in sent[0].instances] == ["", "node-failures"]
    assert cluster.world.log()[-1] == (100, "node_provisioned", "a-new-1")
    assert cluster.world.entries[-1].observed.node_provisioned.message
    cluster.until(110 * S)
    assert not cluster.outcome().refused
    assert cluster.cloud.target("a") == 1
    assert not cluster.cloud.has_upcoming
    assert cluster.world.log()[-1] == (100, "node_provisioned", "a-new-1")


@pytest.mark.parametrize(
    ("request_", "message", "gone"),
    [
        ({"increase_size": pb.IncreaseSize(group="x", delta=1)}, "there is no group x", True),
        (
            {"decrease_target_size": pb.DecreaseTargetSize(group="a", delta=1)},
            "attempt to delete existing nodes: the target is 1, and the group has 1 instances",
            False,
        ),
        (
            {"delete_nodes": pb.DeleteNodes(group="a", provider_ids=["reprieve://n"])},
            "min size reached, nodes will not be deleted: 1",
            False,
        ),
        (
            {"delete_nodes": pb.DeleteNodes(group="a", provider_ids=["reprieve://x"])},
            "group a has no instance reprieve://x",
            False,
        ),
        ({"evict_pod": pb.EvictPod(namespace="default", name="x")}, 'pods "x" not found', True),
        (
            {"mark_node": pb.MarkNode(node_name="x", taint=node_pb2.Taint(key="k"))},
            'nodes "x" not found',
            True,
        ),
        ({"unmark_node": pb.UnmarkNode(node_name="x", taint_key="k")}, 'nodes "x" not found', True),
    ],
)
def test_what_cannot_be_done_is_refused(
    request_: dict[str, object], message: str, *, gone: bool
) -> None:
    """An unknown object is gone; the API server's and the cloud's messages are upstream's."""
    cluster = Cluster(call(**request_), report())
    cluster.until(10 * S)
    outcome = cluster.outcome()
    assert (outcome.refused, outcome.message, outcome.gone) == (True, message, gone)


def test_a_mark_stays_on_later_versions_of_the_trace_until_it_is_taken_off() -> None:
    """A recorded update knows nothing of the taint."""
    taint = node_pb2.Taint(key="ToBeDeleted", value="1", effect="NoSchedule")
    cluster = Cluster(
        call(mark_node=pb.MarkNode(node_name="n", taint=taint, cordon=True)),
        report(),
        call(unmark_node=pb.UnmarkNode(node_name="n", taint_key="ToBeDeleted", uncordon=True)),
        report(),
    )
    cluster.until(10 * S)
    nodes = cluster.world.cluster.nodes
    assert nodes["n"].spec.unschedulable
    cluster.world.feed(11 * S, create(node("n")))
    keys = [taint.key for taint in nodes["n"].spec.taints]
    assert keys == ["ToBeDeleted", "node.kubernetes.io/unschedulable"]
    assert nodes["n"].spec.unschedulable
    cluster.until(20 * S)
    assert not nodes["n"].spec.unschedulable
    assert not nodes["n"].spec.taints


def test_later_versions_of_the_trace_do_not_bring_a_deleted_node_back() -> None:
    """A recording goes on to update a node that the autoscaler has removed here."""
    deletion = pb.DeleteNodes(group="a", provider_ids=["reprieve://m"])
    cluster = Cluster(call(delete_nodes=deletion), report())
    cluster.world.feed(1 * S, create(node("m")))
    cluster.until(10 * S)
    assert set(cluster.world.cluster.nodes) == {"n"}
    cluster.world.feed(11 * S, update(node("m")))
    assert set(cluster.world.cluster.nodes) == {"n"}
    assert cluster.cloud.target("a") == 1


def test_an_instance_that_is_named_twice_is_deleted_once() -> None:
    """Both by the size and by the instances."""
    deletion = pb.DeleteNodes(group="a", provider_ids=["reprieve://m", "reprieve://m"])
    cluster = Cluster(call(delete_nodes=deletion), report())
    cluster.world.feed(1 * S, create(node("m")))
    cluster.until(10 * S)
    assert not cluster.outcome().refused
    assert cluster.cloud.target("a") == 1
    assert cluster.backend.sent() == ["group a 1/1", "no Node m"]


def test_an_eviction_obeys_the_grace_period_and_is_recorded_by_its_cause() -> None:
    """The autoscaler's grace period is shorter than the pod's."""
    evict = pb.EvictPod(namespace="default", name="p", grace_period_duration_ns=5 * S)
    cluster = Cluster(call(evict_pod=evict), report())
    pod = make_pod("p", node="n")
    cluster.world.feed(0, create_pod(pod))
    cluster.until(14 * S)
    assert cluster.world.pod("p").is_terminating
    cluster.until(16 * S)
    assert cluster.world.log()[-1] == (15, "removed", "p")
    assert cluster.world.entries[-1].observed.removed.cause == "scaled-down"


def test_pods_are_sent_with_a_controller_that_the_trace_does_not_have() -> None:
    """Otherwise no pod of a plain list of pods could be moved."""
    cluster = Cluster()
    pod = make_pod("p", node="n")
    owner = pod.metadata.owner_references.add(kind="ReplicaSet", name="web", uid="u")
    owner.controller = True
    cluster.world.feed(1 * S, create_pod(pod))
    cluster.until(10 * S)
    assert cluster.backend.sent() == ["ReplicaSet web", "Pod p"]
    assert cluster.backend.changes[-1][0].object.replica_set.spec.replicas == 1


def test_pods_that_have_ended_are_gone_for_the_autoscaler() -> None:
    """Upstream's lister leaves them out."""
    cluster = Cluster()
    cluster.world.feed(1 * S, create_pod(make_pod("p", node="n"), service_duration_ns=20 * S))
    cluster.until(10 * S)
    assert cluster.backend.sent() == ["Pod p"]
    cluster.until(30 * S)
    assert cluster.backend.sent() == ["no Pod p"]


def test_why_no_group_takes_a_pod_is_recorded_once_until_it_changes() -> None:
    """A scan comes every ten seconds, and says the same."""

    def refused(reason: str) -> service_pb.ApplyResponse:
        up = pb.ScaleUpReport(result="NoOptionsAvailable")
        remaining = up.remaining.add(pod="default/p", rejected_groups=["b"])
        remaining.skipped_groups.add(group="a", reasons=[reason])
        return report(scale_up=up, pods_to_help=["default/p"])

    cluster = Cluster(refused("full"), refused("full"), refused("in backoff"))
    cluster.world.feed(0, create_pod(make_pod("p")))
    cluster.until(30 * S)
    assert cluster.world.log() == [(10, "no_scale_up", "p"), (30, "no_scale_up", "p")]
    groups = cluster.world.entries[0].observed.no_scale_up.groups
    assert [(group.group, list(group.reasons)) for group in groups] == [
        ("b", ["the pod would not fit a new node"]),
        ("a", ["full"]),
    ]


def _unneeded(*names: str, reason: str = "") -> service_pb.ApplyResponse:
    return report(
        unneeded=[pb.UnneededNode(node_name=name, since_time_ns=10 * S) for name in names],
        unremovable=[pb.UnremovableNode(node_name=name, reason=reason) for name in names if reason],
    )


@pytest.mark.parametrize(
    ("answer", "is_idle"),
    [
        (report(), True),
        (_unneeded("n"), False),
        (_unneeded("n", reason="NotUnneededLongEnough"), False),
        (_unneeded("n", reason="NodeGroupMinSizeReached"), True),
        (report(backoff={"a": "timeout"}, pods_to_help=["default/p"]), False),
        (report(backoff={"a": "timeout"}), True),
        (report(scale_up=pb.ScaleUpReport(result="InCooldown")), False),
    ],
)
def test_a_scan_keeps_a_replay_going_only_where_a_later_one_may_do_something(
    answer: service_pb.ApplyResponse, *, is_idle: bool
) -> None:
    """Otherwise a run with an autoscaler would never end."""
    cluster = Cluster(answer)
    cluster.until(10 * S)
    assert cluster.world.timeline.is_idle is is_idle


def test_scale_ups_that_fail_for_an_hour_keep_a_replay_no_longer() -> None:
    """A group backs off again and again; a note says that the run did not wait."""
    failing = report(backoff={"a": "timeout"}, pods_to_help=["default/p"])
    cluster = Cluster(*[failing] * 400)
    cluster.until(3600 * S)
    assert not cluster.world.timeline.is_idle
    cluster.until(3610 * S)
    assert cluster.world.timeline.is_idle
    assert any(kind == "autoscaler" for kind, _ in cluster.world.journal.notes)


def test_a_node_whose_removal_failed_keeps_a_replay_no_longer() -> None:
    """Its drain would fail again after every ten minutes."""
    started = report(deletions=[pb.NodeDeletion(node_name="n", drained=True)])
    failed = _unneeded("n")
    failed.report.delete_results["n"] = "failed_to_evict"
    cluster = Cluster(_unneeded("n"), started, failed)
    cluster.until(20 * S)
    assert not cluster.world.timeline.is_idle
    cluster.until(30 * S)
    assert cluster.world.timeline.is_idle
    steps = [entry.observed.node_removal.step for entry in cluster.world.entries]
    assert steps == ["Started", "Failed"]
    assert cluster.world.entries[0].observed.node_removal.unneeded_since_time_ns == 10 * S


def test_an_answer_that_breaks_the_contract_is_refused() -> None:
    """Before anything of it is carried out."""
    for answer in (service_pb.ApplyResponse(), service_pb.ApplyResponse(call=pb.Call())):
        cluster = Cluster(answer)
        with pytest.raises(ContractError, match="the autoscaler returned an invalid response"):
            cluster.until(10 * S)


def test_a_step_that_never_ends_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """An autoscaler that asks again and again would hold the replay."""
    monkeypatch.setattr(cluster_autoscaler, "CALLS_MAX", 5)
    cluster = Cluster(*[call(evict_pod=pb.EvictPod(namespace="d", name="x"))] * 10)
    with pytest.raises(ContractError, match="call: is call 6 of one step"):
        cluster.until(10 * S)


def test_new_nodes_without_the_trace_s_daemon_sets_are_noted() -> None:
    """A list of pods need not have the DaemonSets that made some of them."""
    cluster = Cluster(increase(1), scaled(to=2))
    pod = make_pod("agent-1", node="n")
    owner = pod.metadata.owner_references.add(kind="DaemonSet", name="agent", uid="d")
    owner.controller = True
    cluster.world.feed(0, create_pod(pod))
    cluster.until(100 * S)
    ending = Ending(at_ns=100 * S, start_ns=0, is_finished=True, is_cut=False)
    cluster.loop.conclude(ending)
    (text,) = [text for kind, text in cluster.world.journal.notes if kind == "autoscaler"]
    assert text.endswith(": agent")


def test_a_daemon_set_is_sent_when_it_changes_and_when_it_goes() -> None:
    """Its pods count in what a new node of a group has to spare."""
    cluster = Cluster()
    message = object_pb2.KubernetesObject()
    message.daemon_set.metadata.name = "agent"
    cluster.loop.put(1 * S, message)
    cluster.until(10 * S)
    assert cluster.backend.sent() == ["DaemonSet agent"]
    ref = meta_pb2.ObjectReference(kind="DaemonSet", name="agent")
    cluster.loop.remove(11 * S, ref)
    cluster.until(20 * S)
    assert cluster.backend.sent() == ["no DaemonSet agent"]
