"""The autoscaler's service: what it refuses, what it keeps, and what it counts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from reprieve.autoscaler.v1beta1 import autoscaler_pb2 as messages
from reprieve.autoscaler.v1beta1 import autoscaler_service_pb2 as pb
from reprieve.kube.v1beta1 import node_pb2, object_pb2, pod_pb2
from reprieve.session.v1beta1 import session_pb2
from services.autoscaler.servicer import AutoscalerServicer
from services.kube.time import SECOND_NS
from services.rpc.errors import (
    FieldError,
    LimitError,
    PreconditionError,
    RefusalError,
    TimeGoesBackwardsError,
)
from services.rpc.limits import Limits
from services.rpc.parts import PART_BYTES, merged
from services.rpc.required import missing
from tests.scrapes import samples

S = SECOND_NS
NO_CONTEXT: Any = None
START = {"start": pb.Start()}
SCAN = {"scan": pb.Scan()}
NEXT_PART = {"next_part": pb.NextPart()}


class Client:
    """A session with a servicer, which numbers its requests."""

    def __init__(self, **flags: str) -> None:
        self.servicer = AutoscalerServicer()
        config = messages.AutoscalerConfig(
            flags={name.replace("_", "-"): text for name, text in flags.items()}
        )
        request = pb.CreateSessionRequest(config=config)
        self.session = asyncio.run(self.servicer.CreateSession(request, NO_CONTEXT)).session_id
        self.sequence = 0

    def request(self, *changes: pb.Change, at_s: int | None = None, **kind: Any) -> pb.ApplyRequest:
        """Return the next request."""
        stamp = session_pb2.Stamp(session_id=self.session, sequence=self.sequence + 1)
        step = None if at_s is None else pb.Step(time_ns=at_s * S, **kind)
        return pb.ApplyRequest(stamp=stamp, changes=changes, step=step)

    def send(self, *changes: pb.Change, at_s: int | None = None, **kind: Any) -> pb.ApplyResponse:
        """Send changes and a step; a refused request does not count."""
        request = self.request(*changes, at_s=at_s, **kind)
        answer = asyncio.run(self.servicer.Apply(request, NO_CONTEXT))
        self.sequence += 1
        return answer

    def scan(self, at_s: int) -> list[messages.Call]:
        """Scan, and return the calls, each of which is done."""
        calls = []
        answer = self.send(at_s=at_s, **SCAN)
        while answer.HasField("call"):
            calls.append(answer.call)
            answer = self.send(at_s=at_s, outcome=pb.Outcome())
        return calls

    def state(self) -> pb.GetStateResponse:
        """Return the session's state."""
        stamp = session_pb2.Stamp(session_id=self.session)
        request = session_pb2.GetStateRequest(stamp=stamp)

        async def parts() -> list[pb.GetStateResponse]:
            return [part async for part in self.servicer.GetState(request, NO_CONTEXT)]

        return merged(asyncio.run(parts()), pb.GetStateResponse())

    def checkpoint(self) -> None:
        """Save the session."""
        stamp = session_pb2.Stamp(session_id=self.session)
        request = session_pb2.CheckpointSessionRequest(stamp=stamp)

        async def chunks() -> None:
            async for _ in self.servicer.CheckpointSession(request, NO_CONTEXT):
                pass

        asyncio.run(chunks())


def group(target: int = 0, most: int = 5) -> pb.Change:
    """Return group "g" of nodes with 4 cores, without instances."""
    template = node_pb2.Node()
    template.status.capacity.update({"cpu": "4", "memory": "8Gi", "pods": "110"})
    made = messages.NodeGroup(name="g", max_size=most, target_size=target, template=template)
    return pb.Change(node_group=made)


def node(name: str) -> pb.Change:
    """Return a ready node of the instance with its name."""
    made = node_pb2.Node()
    made.metadata.name, made.spec.provider_id = name, name
    made.status.capacity.update({"cpu": "4", "memory": "8Gi", "pods": "110"})
    made.status.allocatable.update(made.status.capacity)
    made.status.conditions.add(type="Ready", status="True")
    return pb.Change(object=object_pb2.KubernetesObject(node=made))


def pending(name: str, cpu: str = "1") -> pb.Change:
    """Return a pod that the scheduler has refused."""
    pod = pod_pb2.Pod()
    pod.metadata.namespace, pod.metadata.name, pod.metadata.uid = "default", name, name
    container = pod.spec.containers.add(name="c")
    container.resources.requests["cpu"] = cpu
    pod.status.conditions.add(type="PodScheduled", status="False", reason="Unschedulable")
    return pb.Change(object=object_pb2.KubernetesObject(pod=pod))


def test_a_scan_asks_for_nodes_and_waits_for_the_answer() -> None:
    """The call, its outcome, and the report; the metrics count what was added."""
    client = Client()
    client.send(group(), pending("p"), at_s=0, **START)
    answer = client.send(at_s=10, **SCAN)
    assert answer.call.increase_size == messages.IncreaseSize(group="g", delta=1)
    assert not answer.HasField("next_due_time_ns")
    answer = client.send(group(target=1), at_s=10, outcome=pb.Outcome())
    assert answer.report.scale_up.result == "Successful"
    assert dict(answer.report.upcoming) == {"g": 1}
    assert answer.next_due_time_ns == 120 * S
    counted = samples(client.servicer.collect)
    assert counted["cluster_autoscaler_scaled_up_nodes_total"] == 1


def test_a_refused_increase_backs_the_group_off() -> None:
    """With the cloud's error, and it is counted."""
    client = Client()
    client.send(group(), pending("p"), at_s=0, **START)
    client.send(at_s=10, **SCAN)
    answer = client.send(at_s=10, outcome=pb.Outcome(refused=True))
    assert answer.report.scale_up.result == "Error"
    assert list(answer.report.scale_up.failed_groups) == ["g"]
    assert dict(answer.report.backoff) == {"g": "cloudProviderError"}


def test_steps_come_in_order() -> None:
    """Start first and once, an outcome only for a call, nothing else while one waits."""
    client = Client()
    with pytest.raises(PreconditionError, match="start comes first"):
        client.send(at_s=0, **SCAN)
    client.send(group(), pending("p"), at_s=5, **START)
    with pytest.raises(PreconditionError, match="started already"):
        client.send(at_s=5, **START)
    with pytest.raises(PreconditionError, match="no call waits"):
        client.send(at_s=5, outcome=pb.Outcome())
    with pytest.raises(TimeGoesBackwardsError):
        client.send(at_s=4, **SCAN)
    client.send(at_s=10, **SCAN)
    with pytest.raises(PreconditionError, match="waits for its outcome"):
        client.send(at_s=20, **SCAN)
    with pytest.raises(PreconditionError, match="waits for its outcome"):
        client.checkpoint()


def test_a_long_report_comes_in_parts() -> None:
    """Of 1 MiB at most, each the answer to a step; nothing else comes between."""
    client = Client()
    names = [f"{number:0250}" for number in range(3000)]
    client.send(*map(pending, names), at_s=0, **START)
    with pytest.raises(PreconditionError, match="no report has more parts"):
        client.send(at_s=10, **NEXT_PART)
    answers = [client.send(at_s=10, **SCAN)]
    while answers[-1].more:
        for kind in (SCAN, {"outcome": pb.Outcome()}):
            with pytest.raises(PreconditionError):
                client.send(at_s=20, **kind)
        with pytest.raises(PreconditionError, match="the report has more parts"):
            client.checkpoint()
        assert client.send().more
        answers.append(client.send(at_s=10, **NEXT_PART))
    assert len(answers) > 1
    assert max(answer.report.ByteSize() for answer in answers) <= PART_BYTES + 50
    assert {missing(answer) for answer in answers} == {""}
    report = merged((answer.report for answer in answers), messages.ScanReport())
    assert report.scale_up.result == "NoOptionsAvailable"
    keys = [f"default/{name}" for name in names]
    assert list(report.pods_to_help) == keys
    assert [pod.pod for pod in report.scale_up.remaining] == keys
    client.checkpoint()


def test_the_state_has_what_is_kept_from_scan_to_scan() -> None:
    """Nothing before the start; the call that waits, open requests and backoffs of groups."""
    client = Client()
    assert client.state() == pb.GetStateResponse()
    client.send(group(), pending("p"), at_s=7200, **START)
    assert client.state() == pb.GetStateResponse(
        time_ns=7200 * S,
        last_scale_up_time_ns=3600 * S,
        last_scale_down_time_ns=3600 * S,
        last_scale_down_failure_time_ns=3600 * S,
    )
    client.send(at_s=7210, **SCAN)
    assert client.state().call.increase_size.group == "g"
    client.send(group(target=1), at_s=7210, outcome=pb.Outcome())
    state = client.state()
    assert not state.HasField("call")
    assert state.last_scale_up_time_ns == 7210 * S
    assert list(state.groups) == [
        messages.GroupState(
            group="g",
            requested_nodes=1,
            requested_time_ns=7210 * S,
            expected_time_ns=(7210 + 900) * S,
        )
    ]
    client.send(group(target=1), pending("q", "4"), at_s=7220, **SCAN)
    client.send(at_s=7220, outcome=pb.Outcome(refused=True))
    (kept,) = client.state().groups
    backoff = kept.backoff_until_time_ns, kept.backoff_code
    assert backoff == ((7220 + 300) * S, "cloudProviderError")


def test_the_state_has_the_nodes_that_go_or_may_go() -> None:
    """Unneeded since the first scan, then tainted and waiting for its deletion."""
    client = Client(scale_down_unneeded_time="15s", scale_down_delay_after_add="0s")
    grown = group(target=1)
    instance = {"provider_id": "g-0", "state": messages.INSTANCE_STATE_RUNNING}
    grown.node_group.instances.add(**instance)
    client.send(grown, node("g-0"), at_s=0, **START)
    calls = client.scan(10)
    assert [call.WhichOneof("request") for call in calls] == ["mark_node"]
    (kept,) = client.state().nodes
    assert kept == messages.NodeState(node_name="g-0", unneeded_since_time_ns=10 * S)
    client.scan(30)
    (kept,) = client.state().nodes
    assert kept.deletion == messages.DELETION_STAGE_WAITING
    assert kept.deletion_due_time_ns == 35 * S


def test_a_refused_batch_changes_nothing() -> None:
    """Its valid changes, too, are left out."""
    client = Client()
    client.send(group(), at_s=0, **START)
    wrong = pb.Change(node_group=messages.NodeGroup(name="h", min_size=3, max_size=2))
    with pytest.raises(FieldError, match="max_size") as refused:
        client.send(pending("p"), wrong, at_s=10, **SCAN)
    assert refused.value.field == "changes[1].node_group.min_size"
    assert client.send(at_s=10, **SCAN).report.scale_up.result == "NotNeeded"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (pb.Change(), "changes[0].kind"),
        (pb.Change(removed_node_group=""), "changes[0].removed_node_group"),
        (
            pb.Change(node_group=messages.NodeGroup(name="g", options={"expander": "price"})),
            "changes[0].node_group.options",
        ),
        (
            pb.Change(node_group=messages.NodeGroup(name="g", target_size=-1)),
            "changes[0].node_group.target_size",
        ),
        (
            pb.Change(
                node_group=messages.NodeGroup(
                    name="g", options={"scale-down-unneeded-time": f"{2**61 + 1}ns"}
                )
            ),
            "changes[0].node_group.options",
        ),
    ],
)
def test_a_change_that_cannot_be_read_is_refused_by_its_field(
    change: pb.Change, field: str
) -> None:
    """The path is that in the request."""
    with pytest.raises(FieldError) as refused:
        Client().send(change)
    assert refused.value.field == field


@pytest.mark.parametrize(
    "flags",
    [
        {"no_such_flag": "1"},
        {"expander": "none"},
        {"max_node_provision_time": f"{2**61 + 1}ns"},
        {"scale_down_delay_after_add": f"{2**61 + 1}ns"},
        {"max_graceful_termination_sec": "10000000000"},
    ],
)
def test_a_session_with_a_wrong_flag_is_refused(flags: dict[str, str]) -> None:
    """By the field of the flags."""
    with pytest.raises(RefusalError) as refused:
        Client(**flags)
    assert isinstance(refused.value, FieldError)
    assert refused.value.field == "config.flags"


def test_nodes_that_a_group_promises_count_as_objects() -> None:
    """A scan simulates each: a target beyond the limit is refused, also in place of a small one."""
    client = Client()
    client.servicer = AutoscalerServicer(Limits(session_objects=100))
    request = pb.CreateSessionRequest()
    client.session = asyncio.run(client.servicer.CreateSession(request, NO_CONTEXT)).session_id
    client.send(group(target=90, most=200), at_s=0, **START)
    with pytest.raises(LimitError, match="session_objects=100"):
        client.send(*(pending(str(number)) for number in range(20)))
    with pytest.raises(LimitError, match="session_objects=100"):
        client.send(group(target=2**31 - 1, most=2**31 - 1))
    client.send(group(target=5), *(pending(str(number)) for number in range(4)))
    client.send(*(pending(str(number)) for number in range(90)))


def test_times_and_durations_of_64_bits_can_be_shown_and_saved() -> None:
    """The longest that are accepted; what follows from them has 64 bits, too."""
    client = Client(
        max_node_provision_time=f"{2**61}ns",
        initial_node_group_backoff_duration=f"{2**61}ns",
        max_node_group_backoff_duration=f"{2**61}ns",
    )
    early = pb.Step(time_ns=-(2**62) - 1, start=pb.Start())
    request = client.request(group(), pending("p"))
    request.step.CopyFrom(early)
    with pytest.raises(FieldError, match="before any time"):
        asyncio.run(client.servicer.Apply(request, NO_CONTEXT))
    request.step.time_ns += 1
    asyncio.run(client.servicer.Apply(request, NO_CONTEXT))
    client.sequence += 1
    assert client.state().last_scale_up_time_ns == -(2**62) - 3600 * S
    client.checkpoint()
    request = client.request()
    request.step.CopyFrom(pb.Step(time_ns=2**62, scan=pb.Scan()))
    asyncio.run(client.servicer.Apply(request, NO_CONTEXT))
    client.sequence += 1
    request = client.request()
    request.step.CopyFrom(pb.Step(time_ns=2**62, outcome=pb.Outcome(refused=True)))
    asyncio.run(client.servicer.Apply(request, NO_CONTEXT))
    (kept,) = client.state().groups
    assert kept.backoff_until_time_ns == 2**62 + 2**61
    client.checkpoint()


def listing(name: str, provider_id: str) -> pb.Change:
    """Return a group with an instance whose node has not registered."""
    made = group(target=1)
    made.node_group.name, made.node_group.min_size = name, 0
    made.node_group.instances.add(provider_id=provider_id, state=messages.INSTANCE_STATE_RUNNING)
    return made


def test_an_instance_is_of_the_group_that_lists_it_now() -> None:
    """Since when it has no node still counts, and the group that it was of may be gone."""
    client = Client(max_node_provision_time="30s")
    client.send(listing("g", "i"), at_s=0, **START)
    client.scan(10)
    client.send(pb.Change(removed_node_group="g"), listing("h", "i"))
    client.scan(130)
    (call,) = client.scan(140)
    assert (call.delete_nodes.group, list(call.delete_nodes.provider_ids)) == ("h", ["i"])


def test_a_group_may_go_while_a_call_waits() -> None:
    """The step goes on with the others."""
    client = Client(max_node_provision_time="30s")
    client.send(listing("g", "i"), listing("h", "j"), at_s=0, **START)
    client.scan(10)
    answer = client.send(at_s=50, **SCAN)
    assert answer.call.delete_nodes.group == "g"
    gone = pb.Change(removed_node_group="h")
    answer = client.send(gone, at_s=50, outcome=pb.Outcome())
    assert answer.HasField("report")


def test_background_work_after_centuries_lists_the_instances_once() -> None:
    """However often they were due; the next time keeps the pace of two minutes from the start."""
    client = Client()
    client.send(group(), at_s=0, **START)
    late_s = 2**62 // S
    answer = client.send(at_s=late_s, background_work=pb.BackgroundWork())
    assert late_s * S < answer.next_due_time_ns <= (late_s + 120) * S
    assert answer.next_due_time_ns % (120 * S) == 0


def test_a_repeated_request_returns_the_answer_again() -> None:
    """Nothing is done twice."""
    client = Client()
    client.send(group(), pending("p"), at_s=0, **START)
    request = client.request(at_s=10, **SCAN)
    first = asyncio.run(client.servicer.Apply(request, NO_CONTEXT))
    assert asyncio.run(client.servicer.Apply(request, NO_CONTEXT)) == first


def test_what_is_removed_is_forgotten() -> None:
    """Pods by namespace and name, groups by name; unknown ones are accepted."""
    client = Client()
    client.send(group(), pending("p"), at_s=0, **START)
    gone = pb.RemovedObject(object_kind="Pod", namespace="default", name="p")
    answer = client.send(pb.Change(removed_object=gone), at_s=10, **SCAN)
    assert answer.report.scale_up.result == "NotNeeded"
    answer = client.send(
        pending("p"),
        pb.Change(removed_node_group="g"),
        pb.Change(removed_node_group="h"),
        at_s=20,
        **SCAN,
    )
    assert answer.report.scale_up.result == "NoOptionsAvailable"


def test_a_seed_chooses_between_equal_groups() -> None:
    """Without one it is the first; with one all of them are chosen at some time."""

    def chosen(seed: int | None) -> str:
        servicer = AutoscalerServicer()
        config = messages.AutoscalerConfig(flags={"expander": "random"}, seed=seed)
        made = asyncio.run(
            servicer.CreateSession(pb.CreateSessionRequest(config=config), NO_CONTEXT)
        )
        client = Client()
        client.servicer, client.session, client.sequence = servicer, made.session_id, 0
        groups = [group(), group(), group()]
        for place, change in enumerate(groups):
            change.node_group.name = f"g{place}"
        client.send(*groups, pending("p"), at_s=0, **START)
        return client.send(at_s=10, **SCAN).call.increase_size.group

    assert chosen(None) == "g0"
    assert {chosen(seed) for seed in range(20)} == {"g0", "g1", "g2"}
    assert chosen(7) == chosen(7)
