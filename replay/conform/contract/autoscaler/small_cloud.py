"""The small cloud of the autoscaler's checks: groups, nodes and pods, and calls carried out.

Nothing happens by itself. An increase makes instances that are being created, whose nodes register
when a check says so; an evicted pod is gone at once, unless a check keeps it. A group is sent again
where a call has changed it, with the outcome of that call.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from google.protobuf.text_format import MessageToString

from replay.conform.contract.checks import (
    CheckedSession,
    CheckError,
    ContractClient,
    expect,
    expect_refusal,
)
from reprieve.autoscaler.v1beta1 import autoscaler_pb2 as pb
from reprieve.autoscaler.v1beta1 import autoscaler_service_pb2 as service_pb
from reprieve.kube.v1beta1 import meta_pb2, node_pb2, object_pb2, pod_pb2, policy_pb2, workloads_pb2
from services.kube.time import SECOND_NS

SCAN_S = 10
CALLS_MAX = 50
"""More calls than any step of these checks needs."""
TO_BE_DELETED = "ToBeDeletedByClusterAutoscaler"
RUNNING, CREATING = pb.INSTANCE_STATE_RUNNING, pb.INSTANCE_STATE_CREATING
SAFE_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"
CHANGING = frozenset({"increase_size", "decrease_target_size", "delete_nodes", "evict_pod"})
"""Calls that change groups or evict; taints apart, since soft taints are a courtesy."""
_OWNER = "set"


class Called(NamedTuple):
    """A call, and the second at which it was made."""

    second: float
    call: pb.Call


def group(
    name: str = "g",
    cpu: int = 4,
    *taints: str,
    least: int = 0,
    most: int = 5,
    running: int = 0,
    **more: Any,
) -> pb.NodeGroup:
    """Return a group whose nodes have so many cores; `taints` are NoSchedule, with these keys.

    `running` of its instances run, named NAME-0 and so on. `labels` are those of its nodes.
    """
    labels = {"group": name, **more.pop("labels", {})}
    template = node(f"template-{name}", cpu, *taints, labels=labels)
    made = pb.NodeGroup(
        name=name, min_size=least, max_size=most, target_size=running, template=template, **more
    )
    for number in range(running):
        made.instances.add(provider_id=f"{name}-{number}", state=RUNNING)
    return made


def node(
    name: str, cpu: int = 4, *taints: str, labels: dict[str, str] | None = None
) -> node_pb2.Node:
    """Return a ready node that was made at 0 s, whose instance has its name."""
    made = node_pb2.Node(metadata=meta_pb2.ObjectMeta(name=name, uid=f"uid-{name}", labels=labels))
    made.metadata.labels["kubernetes.io/hostname"] = name
    made.metadata.creation_timestamp.FromSeconds(0)
    made.spec.provider_id = name
    for key in taints:
        made.spec.taints.add(key=key, effect="NoSchedule")
    for held in (made.status.capacity, made.status.allocatable):
        held.update({"cpu": str(cpu), "memory": "16Gi", "pods": "110"})
    made.status.conditions.add(type="Ready", status="True")
    return made


def pod(name: str, cpu: float | str = 1, on: str = "", **more: Any) -> pod_pb2.Pod:
    """Return a pod that the scheduler has refused, or one that runs `on` a node.

    It is of a ReplicaSet that is there, unless `is_bare`. `labels`, `annotations` and
    `node_selector` are its own.
    """
    meta = meta_pb2.ObjectMeta(name=name, namespace="default", uid=f"uid-{name}")
    meta.creation_timestamp.FromSeconds(0)
    for field in ("labels", "annotations"):
        getattr(meta, field).update(more.pop(field, {}))
    if not more.pop("is_bare", False):
        meta.owner_references.add(
            api_version="apps/v1", kind="ReplicaSet", name=_OWNER, uid=_OWNER, controller=True
        )
    spec = pod_pb2.PodSpec(node_name=on, termination_grace_period_seconds=0, **more)
    container = spec.containers.add(name="c", image="image")
    container.resources.requests["cpu"] = cpu if isinstance(cpu, str) else f"{round(cpu * 1000)}m"
    made = pod_pb2.Pod(metadata=meta, spec=spec)
    if on:
        made.status.phase = "Running"
    else:
        made.status.phase = "Pending"
        made.status.conditions.add(type="PodScheduled", status="False", reason="Unschedulable")
    return made


def replica_set() -> workloads_pb2.ReplicaSet:
    """Return the ReplicaSet of the pods."""
    meta = meta_pb2.ObjectMeta(name=_OWNER, namespace="default", uid=_OWNER)
    spec = workloads_pb2.ReplicaSetSpec(replicas=100)
    return workloads_pb2.ReplicaSet(metadata=meta, spec=spec)


def daemon_set(cpu: float) -> workloads_pb2.DaemonSet:
    """Return a DaemonSet whose pods run on every node."""
    made = workloads_pb2.DaemonSet()
    made.metadata.name, made.metadata.namespace, made.metadata.uid = "agent", "default", "agent"
    made.spec.template.metadata.labels["app"] = "agent"
    container = made.spec.template.spec.containers.add(name="c", image="image")
    container.resources.requests["cpu"] = f"{round(cpu * 1000)}m"
    return made


def budget(allowed: int, **labels: str) -> policy_pb2.PodDisruptionBudget:
    """Return a disruption budget of the pods with these labels."""
    made = policy_pb2.PodDisruptionBudget()
    made.metadata.name, made.metadata.namespace, made.metadata.uid = "budget", "default", "budget"
    made.spec.selector.match_labels.update(labels)
    made.status.disruptions_allowed = allowed
    return made


_FIELDS = {
    pod_pb2.Pod: "pod",
    node_pb2.Node: "node",
    policy_pb2.PodDisruptionBudget: "pod_disruption_budget",
    workloads_pb2.DaemonSet: "daemon_set",
    workloads_pb2.ReplicaSet: "replica_set",
}


def change(what: Any) -> service_pb.Change:
    """Return the change that adds a group or an object, or puts it in place of what it was."""
    if isinstance(what, pb.NodeGroup):
        return service_pb.Change(node_group=what)
    return service_pb.Change(object=object_pb2.KubernetesObject(**{_FIELDS[type(what)]: what}))


def removed(kind: str, name: str) -> service_pb.Change:
    """Return the change that removes an object; a node has no namespace."""
    namespace = "" if kind == "Node" else "default"
    return service_pb.Change(
        removed_object=service_pb.RemovedObject(object_kind=kind, namespace=namespace, name=name)
    )


def step(second: float, **kind: Any) -> service_pb.Step:
    """Return a step at its time."""
    return service_pb.Step(time_ns=int(second * SECOND_NS), **kind)


def start(second: float = 0) -> service_pb.Step:
    """Return the first step."""
    return step(second, start=service_pb.Start())


def scan(second: float) -> service_pb.Step:
    """Return a scan."""
    return step(second, scan=service_pb.Scan())


def work(second: float) -> service_pb.Step:
    """Return the background work of a time."""
    return step(second, background_work=service_pb.BackgroundWork())


def outcome(second: float, *, is_refused: bool = False, is_gone: bool = False) -> service_pb.Step:
    """Return how a call ended."""
    return step(second, outcome=service_pb.Outcome(refused=is_refused or is_gone, gone=is_gone))


def create(**flags: str) -> service_pb.CreateSessionRequest:
    """Return the request for a session; a flag's name has "_" where its own has "-"."""
    named = {name.replace("_", "-"): text for name, text in flags.items()}
    return service_pb.CreateSessionRequest(config=pb.AutoscalerConfig(flags=named))


class SmallCloud:
    """A session, and the cloud and the cluster that it decides about; see the module.

    `refuses` has the groups or pods, "*" for all, for which calls of a kind are refused. `stays`
    are evicted pods that are not gone. `due_ns` is when background work is due. A scan that an
    answer has said would be the same as `last_report` has to be: each before `next_scan_ns`.
    """

    def __init__(self, client: ContractClient, *things: Any, **flags: str) -> None:
        self.client = client
        self.session: CheckedSession = client.session(create(**flags))
        self.groups: dict[str, pb.NodeGroup] = {}
        self.nodes: dict[str, node_pb2.Node] = {}
        self.pods: dict[str, pod_pb2.Pod] = {}
        self.refuses: dict[str, set[str]] = {}
        self.stays: set[str] = set()
        self.due_ns: int | None = None
        self.next_scan_ns = 0
        self.last_report = pb.ScanReport()
        self._changes: list[service_pb.Change] = []
        self.put(replica_set(), *things)
        self.send(start())

    def put(self, *things: Any) -> None:
        """Add groups, nodes, pods and other objects, or replace them; sent with the next step."""
        for thing in map(_copy, things):
            match thing:
                case pb.NodeGroup():
                    self.groups[thing.name] = thing
                case node_pb2.Node():
                    self.nodes[thing.metadata.name] = thing
                case pod_pb2.Pod():
                    self.pods[thing.metadata.name] = thing
            self._changes.append(change(thing))

    def remove(self, kind: str, name: str) -> None:
        """Remove a node or a pod."""
        (self.nodes if kind == "Node" else self.pods).pop(name, None)
        self._changes.append(removed(kind, name))

    def register(self, group_name: str, *, cpu: int = 4) -> None:
        """Let every instance of a group that is being created run, and have a ready node."""
        of_cloud = self.groups[group_name]
        for instance in of_cloud.instances:
            if instance.state == CREATING:
                instance.state = RUNNING
                self.put(node(instance.provider_id, cpu, labels={"group": group_name}))
        self.put(of_cloud)

    def send(self, request_step: service_pb.Step | None) -> service_pb.ApplyResponse:
        """Send the changes that were not sent yet with a step, and return the answer."""
        changes, self._changes = self._changes, []
        answer: service_pb.ApplyResponse = self.session.send(
            service_pb.ApplyRequest(changes=changes, step=request_step)
        )
        self.due_ns = answer.next_due_time_ns if answer.HasField("next_due_time_ns") else None
        self.next_scan_ns = answer.next_scan_time_ns
        return answer

    def take(self, request_step: service_pb.Step) -> tuple[list[Called], pb.ScanReport]:
        """Take a step to its end; return its calls, which are carried out, and the report."""
        second, said_ns = request_step.time_ns / SECOND_NS, self.next_scan_ns
        is_same = not self._changes and request_step.time_ns < said_ns
        answer, calls = self.send(request_step), list[Called]()
        while answer.HasField("call"):
            calls.append(Called(second, answer.call))
            if len(calls) > CALLS_MAX:
                raise CheckError(f"a step makes more than {CALLS_MAX} calls")
            answer = self.send(self._carried_out(answer.call, second))
        report = answer.report
        while answer.more:
            answer = self.send(step(second, next_part=service_pb.NextPart()))
            report.MergeFrom(answer.report)
        if request_step.HasField("scan"):
            if is_same and (calls or report != self.last_report):
                raise CheckError(
                    f"the scan at {second:g} s is not as the one before, though next_scan_time_ns "
                    f"was {said_ns / SECOND_NS:g} s"
                )
            self.last_report = report
        return calls, report

    def take_scan(self, second: float) -> tuple[list[Called], pb.ScanReport]:
        """Scan; return the calls, which are carried out, and the report."""
        return self.take(scan(second))

    def scan(self, second: float) -> pb.ScanReport:
        """Scan, and return the report."""
        return self.take(scan(second))[1]

    def calls_of_scan(self, second: float) -> list[pb.Call]:
        """Scan, and return the calls that change groups or evict."""
        return changing(self.take(scan(second))[0])

    def run(self, first_s: float, last_s: float) -> list[Called]:
        """Scan every SCAN_S from `first_s` to `last_s`, with the background work that is due."""
        calls, second = list[Called](), first_s
        while second <= last_s:
            calls += self.work_until(second)
            calls += self.take(scan(second))[0]
            second += SCAN_S
        return calls

    def work_until(self, second: float) -> list[Called]:
        """Do the background work that is due up to a time; return its calls."""
        calls = list[Called]()
        while self.due_ns is not None and self.due_ns <= second * SECOND_NS:
            calls += self.take(work(self.due_ns / SECOND_NS))[0]
        return calls

    def refuses_step(self, request_step: service_pb.Step) -> None:
        """Check that a step is refused as out of order."""
        request = self.session.stamped(service_pb.ApplyRequest(step=request_step))
        expect_refusal(
            lambda: self.client.call("Apply", request), "FAILED_PRECONDITION", "PRECONDITION"
        )

    def _carried_out(self, call: pb.Call, second: float) -> service_pb.Step:
        kind = str(call.WhichOneof("request"))
        request = getattr(call, kind)
        target = getattr(request, "group", "") or getattr(request, "name", "")
        if self.refuses.get(kind, set()) & {target, "*"}:
            return outcome(second, is_refused=True)
        ending = getattr(self, f"_{kind}")(request)
        return outcome(second, is_refused=ending == "refused", is_gone=ending == "gone")

    # Each returns "", or "gone" or "refused" where it has changed nothing.

    def _increase_size(self, request: pb.IncreaseSize) -> str:
        of_cloud = self.groups[request.group]
        expect(
            f"the target of {request.group} is at most its maximum",
            of_cloud.target_size + request.delta <= of_cloud.max_size,
            expected=True,
        )
        for number in range(of_cloud.target_size, of_cloud.target_size + request.delta):
            of_cloud.instances.add(provider_id=f"{request.group}-{number}", state=CREATING)
        of_cloud.target_size += request.delta
        self.put(of_cloud)
        return ""

    def _decrease_target_size(self, request: pb.DecreaseTargetSize) -> str:
        of_cloud = self.groups[request.group]
        if of_cloud.target_size - request.delta < len(of_cloud.instances):
            return "refused"
        of_cloud.target_size -= request.delta
        self.put(of_cloud)
        return ""

    def _delete_nodes(self, request: pb.DeleteNodes) -> str:
        of_cloud = self.groups[request.group]
        kept = [it for it in of_cloud.instances if it.provider_id not in request.provider_ids]
        of_cloud.target_size -= len(of_cloud.instances) - len(kept)
        del of_cloud.instances[:]
        of_cloud.instances.extend(kept)
        self.put(of_cloud)
        for name in request.provider_ids:
            for pod_name in [it for it, made in self.pods.items() if made.spec.node_name == name]:
                self.remove("Pod", pod_name)
            self.remove("Node", name)
        return ""

    def _evict_pod(self, request: pb.EvictPod) -> str:
        if request.name not in self.pods:
            return "gone"
        if request.name not in self.stays:
            self.remove("Pod", request.name)
        return ""

    def _mark_node(self, request: pb.MarkNode) -> str:
        made = self.nodes.get(request.node_name)
        if made is None:
            return "gone"
        if all(taint.key != request.taint.key for taint in made.spec.taints):
            made.spec.taints.append(request.taint)
            made.spec.unschedulable = made.spec.unschedulable or request.cordon
            self.put(made)
        return ""

    def _unmark_node(self, request: pb.UnmarkNode) -> str:
        made = self.nodes.get(request.node_name)
        if made is None:
            return "gone"
        kept = [taint for taint in made.spec.taints if taint.key != request.taint_key]
        del made.spec.taints[:]
        made.spec.taints.extend(kept)
        if request.uncordon:
            made.spec.unschedulable = False
        self.put(made)
        return ""


def _copy(thing: Any) -> Any:
    made = type(thing)()
    made.CopyFrom(thing)
    return made


def changing(calls: Iterable[Called]) -> list[pb.Call]:
    """Return the calls that change groups or evict."""
    return [made.call for made in calls if made.call.WhichOneof("request") in CHANGING]


def expect_none(what: str, calls: Iterable[pb.Call]) -> None:
    """Raise CheckError with the calls if there are any."""
    expect(what, [MessageToString(call, as_one_line=True) for call in calls], [])


def increases(calls: Iterable[pb.Call]) -> dict[str, int]:
    """Return by how much each group was increased; other calls fail the check."""
    sums: dict[str, int] = {}
    for call in calls:
        expect("the call", call.WhichOneof("request"), "increase_size")
        request = call.increase_size
        sums[request.group] = sums.get(request.group, 0) + request.delta
    return sums


def deleted(calls: Iterable[Called]) -> list[tuple[str, float]]:
    """Return the deleted instances, each with the second at which it was deleted."""
    return [
        (provider_id, made.second)
        for made in calls
        for provider_id in made.call.delete_nodes.provider_ids
    ]
