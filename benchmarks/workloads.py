"""The workloads of the benchmarks that are made here, record by record.

Those of scheduler_perf are upstream's test cases as values: the importer's own code carries them
out, so that no YAML is needed; tests/e2e/test_benchmarks.py compares them with the YAML files.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from replay.generate.workload import GI, NodeShape, node, pod_template
from replay.hashing import object_uid
from replay.importers.kubernetes.perf_objects import ObjectTemplates
from replay.importers.kubernetes.perf_workload import Workload
from replay.importers.kubernetes.scheduler_perf import WorkloadRun
from replay.importers.records import ImportOptions, Issues, PodTemplates, RecordNumbering
from reprieve.kube.v1beta1.meta_pb2 import IntOrString, ObjectReference
from reprieve.kube.v1beta1.node_pb2 import Node
from reprieve.kube.v1beta1.object_pb2 import KubernetesObject
from reprieve.kube.v1beta1.pod_pb2 import Pod
from reprieve.kube.v1beta1.policy_pb2 import PodDisruptionBudget
from reprieve.kube.v1beta1.workloads_pb2 import Deployment
from reprieve.trace.v1beta1.trace_pb2 import ControllerPod, Delete, Header, Marker, Record
from services.kube.time import SECOND_NS

NAMESPACE = "default"
SETTLED_NS = 60 * SECOND_NS
EVERY_NS = SECOND_NS // 100
"""When pods begin to be replaced, and the time between two."""
_DRIVER, _DEVICE, _DEVICES = "device.example.com", "example.com/device", 8
_NODE = NodeShape(name="n32", cores=32, memory_mib=128 * GI)
_NODES = {"opcode": "createNodes", "countParam": "$initNodes"}
_INIT = {"opcode": "createPods", "countParam": "$initPods"}
_MEASURE = {"opcode": "createPods", "countParam": "$measurePods", "collectMetrics": True}
_CASES: Mapping[str, list[dict[str, Any]]] = {
    "SchedulingBasic": [
        _NODES,
        _INIT | {"podTemplatePath": "default"},
        _MEASURE | {"podTemplatePath": "default"},
    ],
    "PreemptionBasic": [
        _NODES,
        _INIT | {"podTemplatePath": "low"},
        _MEASURE | {"podTemplatePath": "high"},
    ],
    "TopologySpreading": [
        _NODES
        | {
            "nodeTemplatePath": "node",
            "labelNodePrepareStrategy": {
                "labelKey": "topology.kubernetes.io/zone",
                "labelValues": ["moon-1", "moon-2", "moon-3"],
            },
        },
        _INIT | {"podTemplatePath": "default"},
        _MEASURE | {"podTemplatePath": "spreading"},
    ],
    "SchedulingPodAntiAffinity": [
        _NODES,
        {"opcode": "createNamespaces", "prefix": "sched", "count": 2},
        _INIT | {"podTemplatePath": "apart", "namespace": "sched-0"},
        _MEASURE | {"podTemplatePath": "apart", "namespace": "sched-1"},
    ],
}
"""Source: kubernetes v1.36 test/integration/scheduler_perf, performance-config.yaml of misc,
default_preemption, topology_spreading and affinity; objects: templates/."""


def scheduler_perf(case: str, *, nodes: int, pods: int, measured: int) -> Iterator[Record]:
    """Yield a test case of scheduler_perf with its three counts."""
    params = {"initNodes": nodes, "initPods": pods, "measurePods": measured}
    workload = Workload(case, {"workloadTemplate": _CASES[case]}, {}, params)
    numbering = RecordNumbering()
    yield _header(numbering)
    yield from WorkloadRun(workload, _Objects(), numbering, Issues(), ImportOptions()).records()


def at_once(nodes: int, pods: int, shapes: int) -> Iterator[Record]:
    """Yield plain pods of so many shapes by turns, all at time 0."""
    numbering = RecordNumbering()
    yield _header(numbering)
    yield from _nodes(numbering, nodes)
    templates = PodTemplates(numbering)
    for index in range(pods):
        shape = index % shapes
        pod = pod_template(100 + 10 * (shape % 50), 128 + 64 * (shape // 50), labels={})
        yield from templates.pod_create(0, _named(pod, f"pod-{index:05d}"))


def with_devices(nodes: int, pods: int, *, claims: bool) -> Iterator[Record]:
    """Yield nodes of eight devices, and pods that need one each, all at time 0.

    claims: by a claim from a template, in place of an extended resource.
    """
    numbering = RecordNumbering()
    header = _header(numbering)
    header.header.has_devices = claims
    yield header
    for index, record in enumerate(_nodes(numbering, nodes)):
        made = record.create.node
        if not claims:
            made.status.allocatable[_DEVICE] = made.status.capacity[_DEVICE] = str(_DEVICES)
        yield record
        if claims:
            yield numbering.record(0, create=_slice(made.metadata.name, index))
    if claims:
        yield from (numbering.record(0, create=made) for made in _device_objects())
    templates = PodTemplates(numbering)
    for index in range(pods):
        pod = pod_template(100, 128, labels={})
        if claims:
            pod.spec.resource_claims.add(name="device", resource_claim_template_name="one")
            pod.spec.containers[0].resources.claims.add(name="device")
        else:
            amounts = pod.spec.containers[0].resources
            amounts.requests[_DEVICE] = amounts.limits[_DEVICE] = "1"
        yield from templates.pod_create(0, _named(pod, f"pod-{index:05d}"))


def waiting(nodes: int, pods: int, measured: int) -> Iterator[Record]:
    """Yield pods of a hundred shapes that no node can hold, then small ones, one by one."""
    numbering = RecordNumbering()
    yield _header(numbering)
    yield from _nodes(numbering, nodes)
    templates = PodTemplates(numbering)
    for index in range(pods):
        pod = pod_template(1000 * _NODE.cores + 10 * (1 + index % 100), 128, labels={})
        yield from templates.pod_create(0, _named(pod, f"huge-{index:05d}"))
    yield numbering.record(SETTLED_NS, marker=Marker(name="small pods come"))
    for index in range(measured):
        pod = _named(pod_template(100, 128, labels={}), f"small-{index:05d}")
        yield from templates.pod_create(SETTLED_NS + index * EVERY_NS, pod)


def preempted(nodes: int, victims: int) -> Iterator[Record]:
    """Yield so many pods for each node, then pods that come one by one and need a node each.

    Victims go at once, as those of scheduler_perf do.
    """
    numbering = RecordNumbering()
    yield _header(numbering)
    yield from _nodes(numbering, nodes)
    templates = PodTemplates(numbering)
    for index in range(nodes * victims):
        pod = pod_template(1000 * _NODE.cores // victims, 128, labels={})
        pod.spec.termination_grace_period_seconds = 0
        yield from templates.pod_create(0, _named(pod, f"low-{index:05d}"))
    yield numbering.record(SETTLED_NS, marker=Marker(name="preemptors come"))
    for index in range(nodes):
        pod = _named(pod_template(1000 * _NODE.cores, 128, labels={}), f"high-{index:05d}")
        pod.spec.priority = 100
        yield from templates.pod_create(SETTLED_NS + index * EVERY_NS, pod)


def replaced(nodes: int, deployments: int, replicas: int) -> Iterator[Record]:
    """Yield Deployments with a budget each, whose first pods are deleted one by one."""
    numbering = RecordNumbering()
    yield _header(numbering)
    yield from _nodes(numbering, nodes)
    made = []
    for index in range(deployments):
        name = f"web-{index:03d}"
        pods = [f"{name}-rs-{ordinal}" for ordinal in range(replicas)]
        made.append(pods)
        yield from _deployment(numbering, name, pods)
    at_ns = SETTLED_NS
    yield numbering.record(at_ns, marker=Marker(name="pods are replaced"))
    for pod in itertools.chain.from_iterable(zip(*made, strict=True)):
        ref = ObjectReference(kind="Pod", namespace=NAMESPACE, name=pod)
        yield numbering.record(at_ns, delete=Delete(object=ref, cause="user"))
        at_ns += EVERY_NS


def few(records: Iterable[Record], *, nodes: int, pods: int) -> Iterator[Record]:
    """Yield the records but for nodes and pods beyond the first ones."""
    for record in records:
        is_node, is_pod = record.create.HasField("node"), record.HasField("pod_create")
        nodes, pods = nodes - is_node, pods - is_pod
        if (nodes >= 0 or not is_node) and (pods >= 0 or not is_pod):
            yield record


def _deployment(numbering: RecordNumbering, name: str, pods: Sequence[str]) -> Iterator[Record]:
    """Yield the names of a Deployment's first pods, its budget, and then the Deployment."""
    labels = {"app": name}
    owner = ObjectReference(kind="Deployment", namespace=NAMESPACE, name=name)
    set_name = ControllerPod(owner=owner, ordinal=0, name=f"{name}-rs")
    yield numbering.record(0, controller_pod=set_name)
    owner = ObjectReference(kind="ReplicaSet", namespace=NAMESPACE, name=f"{name}-rs")
    for ordinal, pod in enumerate(pods):
        expected = ControllerPod(owner=owner, ordinal=ordinal, name=pod)
        yield numbering.record(0, controller_pod=expected)
    budget = PodDisruptionBudget()
    budget.spec.selector.match_labels.update(labels)
    budget.spec.max_unavailable.CopyFrom(IntOrString(int_value=1))
    deployment = Deployment()
    deployment.spec.replicas = len(pods)
    deployment.spec.selector.match_labels.update(labels)
    template = pod_template(500, GI, labels=labels)
    deployment.spec.template.spec.CopyFrom(template.spec)
    deployment.spec.template.metadata.labels.update(labels)
    for made in (budget, deployment):
        meta = made.metadata
        meta.name, meta.namespace = name, NAMESPACE
        meta.uid = object_uid(made.DESCRIPTOR.name, NAMESPACE, name)
    yield numbering.record(0, create=KubernetesObject(pod_disruption_budget=budget))
    yield numbering.record(0, create=KubernetesObject(deployment=deployment))


def _named(pod: Pod, name: str) -> Pod:
    meta = pod.metadata
    meta.name, meta.namespace = name, NAMESPACE
    meta.uid = object_uid("Pod", NAMESPACE, name)
    return pod


def _header(numbering: RecordNumbering) -> Record:
    return numbering.header(Header(source="synthetic", importer="benchmark 1"))


def _nodes(numbering: RecordNumbering, count: int) -> Iterator[Record]:
    for index in range(count):
        made = node(f"node-{index:05d}", _NODE, f"zone-{index % 3}")
        yield numbering.record(0, create=made)


def _slice(node_name: str, index: int) -> KubernetesObject:
    made = KubernetesObject()
    made.resource_slice.metadata.name = f"slice-{index:05d}"
    spec = made.resource_slice.spec
    spec.driver, spec.node_name = _DRIVER, node_name
    spec.pool.name, spec.pool.generation, spec.pool.resource_slice_count = node_name, 1, 1
    for number in range(_DEVICES):
        spec.devices.add(name=f"device-{number}").attributes["model"].string_value = "a"
    return made


def _device_objects() -> Iterator[KubernetesObject]:
    """Yield the class of all devices, and the template of a claim for one."""
    device_class = KubernetesObject()
    device_class.device_class.metadata.name = _DRIVER
    expression = f'device.driver == "{_DRIVER}"'
    device_class.device_class.spec.selectors.add().cel.expression = expression
    yield device_class
    template = KubernetesObject()
    meta = template.resource_claim_template.metadata
    meta.name, meta.namespace = "one", NAMESPACE
    request = template.resource_claim_template.spec.spec.devices.requests.add(name="device")
    request.exactly.device_class_name = _DRIVER
    yield template


class _Objects(ObjectTemplates):
    """Upstream's object templates as values; none of them varies from object to object."""

    def __init__(self) -> None:
        super().__init__(Path())

    def make(self, name: str, values: Mapping[str, Any]) -> KubernetesObject:
        """Return a new object of the template."""
        del values
        result = KubernetesObject()
        result.CopyFrom(_OBJECTS[name])
        return result


def _perf_node() -> KubernetesObject:
    node = Node()
    node.metadata.generate_name = "scheduler-perf-"
    node.status.capacity.update({"pods": "110", "cpu": "4", "memory": "32Gi"})
    node.status.conditions.add(type="Ready", status="True")
    return KubernetesObject(node=node)


def _perf_pod(
    prefix: str = "pod-", cpu: str = "100m", image: str = "3.10", color: str = ""
) -> KubernetesObject:
    pod = Pod()
    pod.metadata.generate_name = prefix
    if color:
        pod.metadata.labels["color"] = color
    container = pod.spec.containers.add(name="pause", image=f"registry.k8s.io/pause:{image}")
    container.ports.add(container_port=80)
    amounts = {"cpu": cpu, "memory": "500Mi"}
    container.resources.requests.update(amounts)
    container.resources.limits.update(amounts)
    return KubernetesObject(pod=pod)


def _objects() -> Mapping[str, KubernetesObject]:
    low, high = _perf_pod(cpu="900m"), _perf_pod(cpu="3000m")
    low.pod.spec.termination_grace_period_seconds = 0
    high.pod.spec.priority = 10
    spreading = _perf_pod("spreading-pod-", color="blue")
    constraint = spreading.pod.spec.topology_spread_constraints.add(
        max_skew=5, topology_key="topology.kubernetes.io/zone", when_unsatisfiable="DoNotSchedule"
    )
    constraint.label_selector.match_labels["color"] = "blue"
    apart = _perf_pod("anti-affinity-pod-", image="3.10.2", color="green")
    required = apart.pod.spec.affinity.pod_anti_affinity
    term = required.required_during_scheduling_ignored_during_execution.add(
        topology_key="kubernetes.io/hostname", namespaces=["sched-1", "sched-0"]
    )
    term.label_selector.match_labels["color"] = "green"
    return {
        "node": _perf_node(),
        "default": _perf_pod(image="3.10.1"),
        "low": low,
        "high": high,
        "spreading": spreading,
        "apart": apart,
    }


_OBJECTS = _objects()
