"""What a trace shows of node groups, beside their sizes."""

from __future__ import annotations

from replay.autoscaling.observed import ObservedNodes
from reprieve.kube.v1beta1 import meta_pb2, node_pb2, object_pb2
from reprieve.trace.v1beta1 import trace_pb2
from services.kube.time import SECOND_NS


def node(at_s: int, name: str, *, is_ready: bool = True) -> trace_pb2.Record:
    """Return a node's new version."""
    made = node_pb2.Node()
    made.metadata.name = name
    made.metadata.labels["eks.amazonaws.com/nodegroup"] = "web"
    made.status.capacity["cpu"] = "4"
    made.status.conditions.add(type="Ready", status=str(is_ready))
    record = trace_pb2.Record(time_ns=at_s * SECOND_NS)
    record.create.node.CopyFrom(made)
    return record


def refused(at_s: int, pod: str) -> trace_pb2.Record:
    """Return a failed attempt to schedule a pod."""
    return observed(at_s, pod, failed_scheduling=trace_pb2.FailedScheduling())


def bound(at_s: int, pod: str, name: str) -> trace_pb2.Record:
    """Return the binding of a pod to a node."""
    return observed(at_s, pod, scheduled=trace_pb2.Scheduled(node_name=name))


def observed(at_s: int, pod: str, **what: object) -> trace_pb2.Record:
    """Return what the recorded cluster did with a pod."""
    ref = meta_pb2.ObjectReference(kind="Pod", namespace="default", name=pod, uid=pod)
    entry = trace_pb2.Observed(object=ref, **what)  # type: ignore[arg-type] # by name
    return trace_pb2.Record(time_ns=at_s * SECOND_NS, observed=entry)


def delays(*records: trace_pb2.Record) -> object:
    """Return the provisioning delay of the only group."""
    nodes = ObservedNodes()
    for record in (node(0, "first"), *records):
        nodes.add(record)
    (group,) = nodes.groups()
    return group.provisioning_delay


def test_the_wait_of_its_first_pod_is_a_nodes_provisioning_time() -> None:
    """From the pod's first refusal at 10 s, to the node's being ready at 75 s."""
    assert delays(
        refused(10, "p"),
        refused(20, "p"),
        refused(30, "late"),
        node(60, "n", is_ready=False),
        node(75, "n"),
        bound(76, "p", "n"),
        bound(77, "late", "n"),
    ) == ["1m5s"]


def test_nodes_that_no_pod_waited_for_show_no_delay() -> None:
    """Nodes of the beginning, pods that came after the node, and pods that waited for more."""
    assert delays(refused(10, "p"), bound(20, "p", "first")) is None
    assert delays(node(20, "n"), refused(30, "p"), bound(40, "p", "n")) is None
    assert delays(node(20, "n"), bound(40, "p", "n")) is None
    assert delays(refused(10, "p"), node(2000, "n"), bound(2001, "p", "n")) is None


def test_what_claims_devices_is_named() -> None:
    """Bare pods, and controllers that make such pods; a Deployment without claims is not."""
    plain, claiming = object_pb2.KubernetesObject(), object_pb2.KubernetesObject()
    for made, name in ((plain, "web"), (claiming, "train")):
        made.deployment.metadata.name, made.deployment.metadata.namespace = name, "ml"
        made.deployment.spec.template.spec.containers.add(name="c")
    claiming.deployment.spec.template.spec.resource_claims.add(name="gpu")
    named = []
    for records in ([plain], [plain, claiming]):
        nodes = ObservedNodes()
        for made in records:
            nodes.add(trace_pb2.Record(create=made))
        named.append(nodes.claiming)
    assert named == ["", "Deployment ml/train"]
