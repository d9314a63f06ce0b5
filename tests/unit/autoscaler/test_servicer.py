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
from services.rpc.errors import FieldError, PreconditionError, RefusalError, TimeGoesBackwardsError
from tests.scrapes import samples

S = SECOND_NS
NO_CONTEXT: Any = None
START = {"start": pb.Start()}
SCAN = {"scan": pb.Scan()}


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


def group(target: int = 0, most: int = 5) -> pb.Change:
    """Return group "g" of nodes with 4 cores, without instances."""
    template = node_pb2.Node()
    template.status.capacity.update({"cpu": "4", "memory": "8Gi", "pods": "110"})
    made = messages.NodeGroup(name="g", max_size=most, target_size=target, template=template)
    return pb.Change(node_group=made)


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
    request = session_pb2.CheckpointSessionRequest(
        stamp=session_pb2.Stamp(session_id=client.session)
    )

    async def checkpoint() -> None:
        async for _ in client.servicer.CheckpointSession(request, NO_CONTEXT):
            pass

    with pytest.raises(PreconditionError, match="waits for its outcome"):
        asyncio.run(checkpoint())


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
        (
            pb.Change(node_group=messages.NodeGroup(name="g", options={"expander": "price"})),
            "changes[0].node_group.options",
        ),
        (
            pb.Change(node_group=messages.NodeGroup(name="g", target_size=-1)),
            "changes[0].node_group.target_size",
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


@pytest.mark.parametrize("flags", [{"no_such_flag": "1"}, {"expander": "none"}])
def test_a_session_with_a_wrong_flag_is_refused(flags: dict[str, str]) -> None:
    """By the field of the flags."""
    with pytest.raises(RefusalError) as refused:
        Client(**flags)
    assert isinstance(refused.value, FieldError)
    assert refused.value.field == "config.flags"


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
