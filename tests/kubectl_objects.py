"""Kubernetes objects as `kubectl get -A -o yaml` prints them, with an API server's defaults.

The clusters of the tests (`living_cluster.py`, `zoned_cluster.py`) are made of them.
"""

from __future__ import annotations

import copy
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml

Raw = dict[str, Any]
TAKEN = datetime(2026, 3, 2, 9, 30, tzinfo=UTC)
"""When a cluster was printed: the time of its nodes' last heartbeats."""
TAKEN_NS = int(TAKEN.timestamp()) * 1_000_000_000
SHOP, SYSTEM = "shop", "kube-system"
_SUFFIXES = ("bcdfg", "hjklm", "npqrs", "tvwxz", "24567", "89bcd")
"""The ends of the names of a ReplicaSet's pods: letters as upstream's names have them."""


def ago(**span: float) -> str:
    """Return the time that lies so long before the cluster was printed, as an API server does."""
    return f"{TAKEN - timedelta(**span):%Y-%m-%dT%H:%M:%SZ}"


def write_list(path: Path, items: list[Raw]) -> Path:
    """Write objects as kubectl prints a List in YAML, and return the path."""
    whole = {
        "apiVersion": "v1",
        "items": items,
        "kind": "List",
        "metadata": {"resourceVersion": ""},
    }
    path.write_text(yaml.dump(whole, Dumper=yaml.CSafeDumper))
    return path


def named(items: list[Raw], kind: str, name: str) -> Raw:
    """Return the object of a kind and name."""
    return next(item for item in items if item["kind"] == kind and item["metadata"]["name"] == name)


def kubernetes_object(
    api_version: str, kind: str, name: str, *, namespace: str = SHOP, **fields: Any
) -> Raw:
    """Return an object of two days; `metadata` among the fields is added to its own."""
    metadata: Raw = {
        "creationTimestamp": ago(days=2),
        "name": name,
        "resourceVersion": "4711",
        "uid": f"{kind.lower()}-{name}-uid",
        **fields.pop("metadata", {}),
    }
    if namespace:
        metadata["namespace"] = namespace
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}


def owner_references(owner: Raw) -> list[Raw]:
    """Return what an object of this controller has as `metadata.ownerReferences`."""
    return [
        {
            "apiVersion": owner["apiVersion"],
            "blockOwnerDeletion": True,
            "controller": True,
            "kind": owner["kind"],
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
        }
    ]


def container(name: str, image: str, requests: Raw, limits: Raw | None = None) -> Raw:
    """Return a container as a template has it; its image is `image` with the tag 1."""
    resources: Raw = {"requests": requests}
    if limits:
        resources["limits"] = limits
    return {
        "image": f"registry.example/{image}:1",
        "imagePullPolicy": "IfNotPresent",
        "name": name,
        "resources": resources,
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
    }


def pod_template(
    labels: Raw,
    cpu: str,
    memory: str = "256Mi",
    class_name: str = "",
    *,
    limits: Raw | None = None,
    **spec: Any,
) -> Raw:
    """Return a pod template with one container; `spec` has more fields of the pod's spec."""
    requests = {"cpu": cpu, "memory": memory}
    whole: Raw = {
        "containers": [container("main", labels["app"], requests, limits)],
        "dnsPolicy": "ClusterFirst",
        "restartPolicy": "Always",
        "schedulerName": "default-scheduler",
        "securityContext": {},
        "terminationGracePeriodSeconds": 30,
        **copy.deepcopy(spec),
    }
    if class_name:
        whole["priorityClassName"] = class_name
    return {"metadata": {"creationTimestamp": None, "labels": labels}, "spec": whole}


def deployment(
    name: str,
    replicas: int,
    template: Raw,
    *,
    priority: int = 0,
    namespace: str = SHOP,
    strategy: Raw | None = None,
) -> tuple[Raw, Raw, list[Raw]]:
    """Return a Deployment that has rolled out, its ReplicaSet and its pods, not placed yet."""
    hash_ = f"{len(name)}d9f7c5b6"
    labels = template["metadata"]["labels"]
    hashed = copy.deepcopy(template)
    hashed["metadata"]["labels"] = {**labels, "pod-template-hash": hash_}
    status = {
        "availableReplicas": replicas,
        "observedGeneration": 1,
        "readyReplicas": replicas,
        "replicas": replicas,
        "updatedReplicas": replicas,
    }
    spec = {
        "progressDeadlineSeconds": 600,
        "replicas": replicas,
        "revisionHistoryLimit": 10,
        "selector": {"matchLabels": labels},
        "strategy": strategy or {"type": "RollingUpdate"},
        "template": template,
    }
    whole = kubernetes_object(
        "apps/v1", "Deployment", name, namespace=namespace, spec=spec, status=status
    )
    replica_set = kubernetes_object(
        "apps/v1",
        "ReplicaSet",
        f"{name}-{hash_}",
        namespace=namespace,
        metadata={
            "labels": hashed["metadata"]["labels"],
            "ownerReferences": owner_references(whole),
        },
        spec={
            "replicas": replicas,
            "selector": {"matchLabels": hashed["metadata"]["labels"]},
            "template": hashed,
        },
        status={"observedGeneration": 1, "readyReplicas": replicas, "replicas": replicas},
    )
    pods = [
        waiting_pod(f"{name}-{hash_}-{letters}", hashed, replica_set, priority)
        for letters in _SUFFIXES[:replicas]
    ]
    return whole, replica_set, pods


def waiting_pod(
    name: str, template: Raw, owner: Raw | None, priority: int = 0, *, namespace: str = SHOP
) -> Raw:
    """Return a pod of a template as admission leaves it, in its owner's namespace."""
    metadata: Raw = {"labels": dict(template["metadata"]["labels"])}
    if owner is not None:
        metadata["ownerReferences"] = owner_references(owner)
        metadata["generateName"] = f"{owner['metadata']['name']}-"
        namespace = owner["metadata"].get("namespace", namespace)
    written = copy.deepcopy(template["spec"])
    spec = {
        **written,
        "enableServiceLinks": True,
        "preemptionPolicy": "PreemptLowerPriority",
        "priority": priority,
        "tolerations": [
            *written.get("tolerations", ()),
            *(
                {
                    "effect": "NoExecute",
                    "key": f"node.kubernetes.io/{key}",
                    "operator": "Exists",
                    "tolerationSeconds": 300,
                }
                for key in ("not-ready", "unreachable")
            ),
        ],
    }
    status = {"phase": "Pending", "qosClass": "Burstable"}
    return kubernetes_object(
        "v1", "Pod", name, namespace=namespace, metadata=metadata, spec=spec, status=status
    )


def run_on(pod: Raw, node: str, **span: float) -> Raw:
    """Let a pod have run on a node since so long (default: two days) before the printing."""
    since = ago(**(span or {"days": 2}))
    pod["metadata"]["creationTimestamp"] = since
    spec = pod["spec"]
    spec["nodeName"] = node
    pod["status"] = {
        "conditions": [
            {"lastProbeTime": None, "lastTransitionTime": since, "status": "True", "type": type_}
            for type_ in ("Initialized", "Ready", "ContainersReady", "PodScheduled")
        ],
        "containerStatuses": [_running(container, since) for container in spec["containers"]],
        "hostIP": "192.0.2.1",
        "phase": "Running",
        "podIP": "10.244.0.7",
        "qosClass": "Burstable",
        "startTime": since,
    }
    if sidecars := spec.get("initContainers"):
        pod["status"]["initContainerStatuses"] = [_running(name, since) for name in sidecars]
    return pod


def _running(container: Raw, since: str) -> Raw:
    return {
        "image": container["image"],
        "lastState": {},
        "name": container["name"],
        "ready": True,
        "restartCount": 0,
        "started": True,
        "state": {"running": {"startedAt": since}},
    }


def end(pod: Raw, **span: float) -> Raw:
    """Let the containers of a running pod have succeeded so long before the cluster was printed."""
    ended = {"exitCode": 0, "finishedAt": ago(**span), "reason": "Completed"}
    pod["status"]["phase"] = "Succeeded"
    for status in pod["status"]["containerStatuses"]:
        status["state"] = {"terminated": ended}
    return pod


def stop(pod: Raw, seconds: int) -> Raw:
    """Let a running pod terminate: its grace period of 30 s ends `seconds` after the printing."""
    gone = TAKEN + timedelta(seconds=seconds)
    pod["metadata"]["deletionTimestamp"] = f"{gone:%Y-%m-%dT%H:%M:%SZ}"
    pod["metadata"]["deletionGracePeriodSeconds"] = 30
    return pod


def refuse(pod: Raw, message: str, **span: float) -> Raw:
    """Let the scheduler have found no node for a pod so long before the cluster was printed."""
    pod["metadata"]["creationTimestamp"] = ago(**span)
    pod["status"]["conditions"] = [
        {
            "lastProbeTime": None,
            "lastTransitionTime": ago(**span),
            "message": message,
            "reason": "Unschedulable",
            "status": "False",
            "type": "PodScheduled",
        }
    ]
    return pod


def daemon_set(name: str, count: int, template: Raw) -> Raw:
    """Return a DaemonSet of the system's namespace with a ready pod on each of `count` nodes."""
    spec = {
        "revisionHistoryLimit": 10,
        "selector": {"matchLabels": template["metadata"]["labels"]},
        "template": template,
        "updateStrategy": {
            "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1},
            "type": "RollingUpdate",
        },
    }
    status = {
        "currentNumberScheduled": count,
        "desiredNumberScheduled": count,
        "numberMisscheduled": 0,
        "numberReady": count,
        "observedGeneration": 1,
    }
    return kubernetes_object(
        "apps/v1", "DaemonSet", name, namespace=SYSTEM, spec=spec, status=status
    )


def daemon_pod(name: str, owner: Raw, node: str) -> Raw:
    """Return the pod of a DaemonSet on a node, with its pin and the controller's tolerations."""
    template = owner["spec"]["template"]
    pod = waiting_pod(name, template, owner, 2_000_001_000)
    pod["metadata"]["uid"] += node
    pod["metadata"]["labels"]["controller-revision-hash"] = "7c9d8f6b5d"
    pod["spec"]["affinity"] = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
                ]
            }
        }
    }
    pressed = ("disk-pressure", "memory-pressure", "pid-pressure", "unschedulable")
    pod["spec"]["tolerations"] = [
        *copy.deepcopy(template["spec"].get("tolerations", [])),
        *(
            {"effect": "NoExecute", "key": f"node.kubernetes.io/{key}", "operator": "Exists"}
            for key in ("not-ready", "unreachable")
        ),
        *(
            {"effect": "NoSchedule", "key": f"node.kubernetes.io/{key}", "operator": "Exists"}
            for key in pressed
        ),
    ]
    return run_on(pod, node)


def stateful_set(
    name: str, replicas: int, template: Raw, *, namespace: str = SHOP, parallel: bool = False
) -> Raw:
    """Return a StatefulSet whose pods are ready and have a claim each, of the template `data`."""
    revision = f"{name}-6f5d9c7b8"
    spec = {
        "podManagementPolicy": "Parallel" if parallel else "OrderedReady",
        "replicas": replicas,
        "selector": {"matchLabels": template["metadata"]["labels"]},
        "serviceName": name,
        "template": template,
        "updateStrategy": {"rollingUpdate": {"partition": 0}, "type": "RollingUpdate"},
        "volumeClaimTemplates": [
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"creationTimestamp": None, "name": "data"},
                "spec": _claim_spec(),
                "status": {"phase": "Pending"},
            }
        ],
    }
    status = {
        "availableReplicas": replicas,
        "currentReplicas": replicas,
        "currentRevision": revision,
        "observedGeneration": 1,
        "readyReplicas": replicas,
        "replicas": replicas,
        "updateRevision": revision,
        "updatedReplicas": replicas,
    }
    return kubernetes_object(
        "apps/v1", "StatefulSet", name, namespace=namespace, spec=spec, status=status
    )


def numbered_pod(owner: Raw, number: int, node: str, priority: int = 0) -> Raw:
    """Return the pod of a StatefulSet with this ordinal, with its claim, running on a node."""
    name = f"{owner['metadata']['name']}-{number}"
    pod = waiting_pod(name, owner["spec"]["template"], owner, priority)
    pod["metadata"]["labels"].update(
        {
            "apps.kubernetes.io/pod-index": str(number),
            "controller-revision-hash": owner["status"]["currentRevision"],
            "statefulset.kubernetes.io/pod-name": name,
        }
    )
    pod["spec"]["volumes"] = [
        {"name": "data", "persistentVolumeClaim": {"claimName": f"data-{name}"}}
    ]
    return run_on(pod, node)


def _claim_spec() -> Raw:
    return {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "10Gi"}},
        "storageClassName": "standard",
        "volumeMode": "Filesystem",
    }


def bound_claim(
    pod_name: str, volume: str, *, namespace: str = SHOP, zone: str = ""
) -> tuple[Raw, Raw]:
    """Return a pod's claim `data` and the volume that it is bound to, perhaps of one zone."""
    name = f"data-{pod_name}"
    claim = kubernetes_object(
        "v1",
        "PersistentVolumeClaim",
        name,
        namespace=namespace,
        metadata={"annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
        spec={**_claim_spec(), "volumeName": volume},
        status={"phase": "Bound"},
    )
    spec: Raw = {
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "10Gi"},
        "claimRef": {
            "kind": "PersistentVolumeClaim",
            "name": name,
            "namespace": namespace,
            "uid": claim["metadata"]["uid"],
        },
        "csi": {"driver": "disk.csi.example", "volumeHandle": volume.replace("pv", "vol")},
        "persistentVolumeReclaimPolicy": "Delete",
        "storageClassName": "standard",
        "volumeMode": "Filesystem",
    }
    if zone:
        term = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone]}
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}}
    status = {"phase": "Bound"}
    return claim, kubernetes_object(
        "v1", "PersistentVolume", volume, namespace="", spec=spec, status=status
    )


def job(
    name: str, completions: int, template: Raw, *, namespace: str = SHOP, **hours: float
) -> Raw:
    """Return a Job, two pods at a time, of which one has succeeded and two run."""
    spec = {
        "backoffLimit": 6,
        "completionMode": "NonIndexed",
        "completions": completions,
        "parallelism": 2,
        "selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": f"job-{name}-uid"}},
        "suspend": False,
        "template": template,
    }
    status = {
        "active": 2,
        "ready": 2,
        "startTime": ago(**hours),
        "succeeded": 1,
        "terminating": 0,
        "uncountedTerminatedPods": {},
    }
    return kubernetes_object("batch/v1", "Job", name, namespace=namespace, spec=spec, status=status)


def job_labels(name: str, app: str) -> Raw:
    """Return the labels of a Job's template: its app, and those that the API server adds."""
    uid = f"job-{name}-uid"
    return {
        "app": app,
        "batch.kubernetes.io/controller-uid": uid,
        "batch.kubernetes.io/job-name": name,
        "controller-uid": uid,
        "job-name": name,
    }


def service(name: str) -> Raw:
    """Return a Service of the pods whose label `app` is its name."""
    spec = {"clusterIP": "10.96.0.10", "selector": {"app": name}, "type": "ClusterIP"}
    return kubernetes_object("v1", "Service", name, spec=spec)


def budget(name: str, pods: int, allowed: int, *, namespace: str = SHOP, **bound: int | str) -> Raw:
    """Return a budget of the pods whose label `app` is its name; `bound` is minAvailable or so."""
    spec = {**bound, "selector": {"matchLabels": {"app": name}}}
    status = {
        "currentHealthy": pods,
        "desiredHealthy": pods - allowed,
        "disruptionsAllowed": allowed,
        "expectedPods": pods,
        "observedGeneration": 1,
    }
    return kubernetes_object(
        "policy/v1", "PodDisruptionBudget", name, namespace=namespace, spec=spec, status=status
    )


def priority_class(name: str, value: int) -> Raw:
    """Return a PriorityClass whose pods preempt those of lower priority."""
    rest = {"preemptionPolicy": "PreemptLowerPriority", "value": value}
    return kubernetes_object("scheduling.k8s.io/v1", "PriorityClass", name, namespace="", **rest)


def node(name: str, capacity: Raw, allocatable: Raw | None = None, **labels: str) -> Raw:
    """Return a node that is ready; labels beside those that its kubelet sets."""
    beat = {"lastHeartbeatTime": ago(), "lastTransitionTime": ago(days=9)}
    conditions = [
        {**beat, "status": "False", "type": "MemoryPressure"},
        {**beat, "status": "True", "type": "Ready", "reason": "KubeletReady"},
    ]
    metadata = {"labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", **labels}}
    return kubernetes_object(
        "v1",
        "Node",
        name,
        namespace="",
        metadata=metadata,
        spec={"podCIDR": "10.244.0.0/24"},
        status={
            "allocatable": allocatable or capacity,
            "capacity": capacity,
            "conditions": conditions,
        },
    )


def cordon(node: Raw, **span: float) -> Raw:
    """Let a node have been cordoned so long before the cluster was printed."""
    node["spec"]["unschedulable"] = True
    node["spec"].setdefault("taints", []).append(
        {
            "effect": "NoSchedule",
            "key": "node.kubernetes.io/unschedulable",
            "timeAdded": ago(**span),
        }
    )
    return node
