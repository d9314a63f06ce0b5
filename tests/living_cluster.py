"""A cluster in mid-life, as `kubectl get ... -A -o yaml` prints it.

Six nodes, three Deployments with budgets, a DaemonSet, a StatefulSet with claims, a Job half done,
PriorityClasses, a pod that terminates, one that waits; one node is cordoned.
"""

from __future__ import annotations

import copy
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml

Raw = dict[str, Any]
TAKEN = datetime(2026, 3, 2, 9, 30, tzinfo=UTC)
"""When the cluster was printed: the time of the nodes' last heartbeats."""
TAKEN_NS = int(TAKEN.timestamp()) * 1_000_000_000
NODES = tuple(f"worker-{number}" for number in range(1, 7))
_DAY = timedelta(days=1)
_NAMESPACE = "shop"
_SYSTEM = "kube-system"


def ago(**span: float) -> str:
    """Return the time that lies so long before the cluster was printed, as an API server does."""
    return f"{TAKEN - timedelta(**span):%Y-%m-%dT%H:%M:%SZ}"


def living_cluster() -> list[Raw]:
    """Return the objects, in the order in which kubectl lists the kinds; each call makes new ones.

    The nodes stand last but for the PriorityClasses, as `kubectl get all,...,nodes,priorityclasses`
    would have it.
    """
    web, web_set, web_pods = _deployment("web", replicas=4, cpu="500m", priority=("frontend", 1000))
    api, api_set, api_pods = _deployment("api", replicas=3, cpu="1", priority=("frontend", 1000))
    batch, batch_set, batch_pods = _deployment("report", replicas=2, cpu="1", priority=("", 0))
    for pods, nodes in ((web_pods, (0, 1, 2, 3)), (api_pods, (1, 2, 4)), (batch_pods, (0, 3))):
        for pod, node in zip(pods, nodes, strict=True):
            _run(pod, NODES[node])
    _run(batch_pods[1], NODES[3], hours=1)
    daemons = [_daemon_pod(node) for node in NODES]
    numbered = [_numbered_pod(number, NODES[number]) for number in range(3)]
    job_pods = [_job_pod(number, NODES[4]) for number in range(2)]
    items = [
        *web_pods,
        *api_pods,
        *batch_pods,
        *daemons,
        *numbered,
        *job_pods,
        _ended_job_pod(),
        _stopping_pod(NODES[5]),
        _waiting_pod(),
        _service("web"),
        _daemon_set(),
        *(web, api, batch),
        *(web_set, api_set, batch_set),
        _stateful_set(),
        _job(),
        *(_budget(name, least) for name, least in (("web", 3), ("api", 2), ("report", "50%"))),
        *(_claim(number) for number in range(3)),
        *(_volume(number) for number in range(3)),
        *(_node(name) for name in NODES),
        _class("frontend", 1000),
        _class("nightly", 10),
        _class("idle", -5),
    ]
    return copy.deepcopy(items)


def write_list(path: Path, items: list[Raw]) -> Path:
    """Write objects as kubectl prints a List in YAML, and return the path."""
    whole = {
        "apiVersion": "v1",
        "items": items,
        "kind": "List",
        "metadata": {"resourceVersion": ""},
    }
    path.write_text(yaml.safe_dump(whole, sort_keys=True))
    return path


def named(items: list[Raw], kind: str, name: str) -> Raw:
    """Return the object of a kind and name."""
    return next(each for each in items if each["kind"] == kind and each["metadata"]["name"] == name)


def pod_template(labels: Raw, cpu: str, memory: str = "256Mi", class_name: str = "") -> Raw:
    """Return a pod template with the defaults that an API server writes into it."""
    container = {
        "image": f"registry.example/{labels['app']}:1",
        "imagePullPolicy": "IfNotPresent",
        "name": "main",
        "resources": {"requests": {"cpu": cpu, "memory": memory}},
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
    }
    spec: Raw = {
        "containers": [container],
        "dnsPolicy": "ClusterFirst",
        "restartPolicy": "Always",
        "schedulerName": "default-scheduler",
        "securityContext": {},
        "terminationGracePeriodSeconds": 30,
    }
    if class_name:
        spec["priorityClassName"] = class_name
    return {"metadata": {"creationTimestamp": None, "labels": labels}, "spec": spec}


def _object(
    api_version: str, kind: str, name: str, *, namespace: str = _NAMESPACE, **fields: Any
) -> Raw:
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


def _owner(owner: Raw) -> list[Raw]:
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


def _deployment(
    name: str, *, replicas: int, cpu: str, priority: tuple[str, int]
) -> tuple[Raw, Raw, list[Raw]]:
    """Return a Deployment that has rolled out, its ReplicaSet and its pods, not placed yet."""
    hash_ = f"{len(name)}d9f7c5b6"
    labels = {"app": name}
    hashed = {**labels, "pod-template-hash": hash_}
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
        "strategy": {"type": "RollingUpdate"},
        "template": pod_template(labels, cpu, class_name=priority[0]),
    }
    deployment = _object("apps/v1", "Deployment", name, spec=spec, status=status)
    set_spec: Raw = {
        "replicas": replicas,
        "selector": {"matchLabels": hashed},
        "template": pod_template(hashed, cpu, class_name=priority[0]),
    }
    replica_set = _object(
        "apps/v1",
        "ReplicaSet",
        f"{name}-{hash_}",
        metadata={"labels": hashed, "ownerReferences": _owner(deployment)},
        spec=set_spec,
        status={"observedGeneration": 1, "readyReplicas": replicas, "replicas": replicas},
    )
    pods = [
        _pod(f"{name}-{hash_}-{letters}", set_spec["template"], replica_set, priority[1])
        for letters in ("bcdfg", "hjklm", "npqrs", "tvwxz")[:replicas]
    ]
    return deployment, replica_set, pods


def _pod(name: str, template: Raw, owner: Raw | None, priority: int = 0, **rest: Any) -> Raw:
    own: Raw = {"labels": dict(template["metadata"]["labels"]), **rest.pop("metadata", {})}
    if owner is not None:
        own["ownerReferences"] = _owner(owner)
        own["generateName"] = f"{owner['metadata']['name']}-"
    spec = {
        **copy.deepcopy(template["spec"]),
        "enableServiceLinks": True,
        "preemptionPolicy": "PreemptLowerPriority",
        "priority": priority,
        "tolerations": [
            {
                "effect": "NoExecute",
                "key": f"node.kubernetes.io/{key}",
                "operator": "Exists",
                "tolerationSeconds": 300,
            }
            for key in ("not-ready", "unreachable")
        ],
        **rest.pop("spec", {}),
    }
    status = {"phase": "Pending", "qosClass": "Burstable"}
    return _object("v1", "Pod", name, metadata=own, spec=spec, status=status, **rest)


def _run(pod: Raw, node: str, **span: float) -> Raw:
    """Let a pod have run on a node since so long before the cluster was printed."""
    since = ago(**(span or {"days": 2}))
    pod["metadata"]["creationTimestamp"] = since
    pod["spec"]["nodeName"] = node
    container = pod["spec"]["containers"][0]
    pod["status"] = {
        "conditions": [
            {"lastProbeTime": None, "lastTransitionTime": since, "status": "True", "type": type_}
            for type_ in ("Initialized", "Ready", "ContainersReady", "PodScheduled")
        ],
        "containerStatuses": [
            {
                "image": container["image"],
                "lastState": {},
                "name": container["name"],
                "ready": True,
                "restartCount": 0,
                "started": True,
                "state": {"running": {"startedAt": since}},
            }
        ],
        "hostIP": "192.0.2.1",
        "phase": "Running",
        "podIP": "10.244.0.7",
        "qosClass": "Burstable",
        "startTime": since,
    }
    return pod


def _daemon_set() -> Raw:
    labels = {"app": "agent"}
    spec = {
        "revisionHistoryLimit": 10,
        "selector": {"matchLabels": labels},
        "template": pod_template(labels, "100m", "64Mi", "system-node-critical"),
        "updateStrategy": {
            "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1},
            "type": "RollingUpdate",
        },
    }
    count = len(NODES)
    status = {
        "currentNumberScheduled": count,
        "desiredNumberScheduled": count,
        "numberMisscheduled": 0,
        "numberReady": count,
        "observedGeneration": 1,
    }
    return _object("apps/v1", "DaemonSet", "agent", namespace=_SYSTEM, spec=spec, status=status)


def _daemon_pod(node: str) -> Raw:
    owner = _daemon_set()
    pod = _pod(f"agent-{node[-1]}wxyz", owner["spec"]["template"], owner, 2_000_001_000)
    pod["metadata"]["namespace"] = _SYSTEM
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
        *(
            {"effect": "NoExecute", "key": f"node.kubernetes.io/{key}", "operator": "Exists"}
            for key in ("not-ready", "unreachable")
        ),
        *(
            {"effect": "NoSchedule", "key": f"node.kubernetes.io/{key}", "operator": "Exists"}
            for key in pressed
        ),
    ]
    return _run(pod, node)


def _stateful_set() -> Raw:
    labels = {"app": "db"}
    spec = {
        "podManagementPolicy": "OrderedReady",
        "replicas": 3,
        "selector": {"matchLabels": labels},
        "serviceName": "db",
        "template": pod_template(labels, "1", "1Gi"),
        "updateStrategy": {"rollingUpdate": {"partition": 0}, "type": "RollingUpdate"},
        "volumeClaimTemplates": [
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"creationTimestamp": None, "name": "data"},
                "spec": {
                    "accessModes": ["ReadWriteOnce"],
                    "resources": {"requests": {"storage": "10Gi"}},
                    "storageClassName": "standard",
                    "volumeMode": "Filesystem",
                },
                "status": {"phase": "Pending"},
            }
        ],
    }
    status = {
        "availableReplicas": 3,
        "currentReplicas": 3,
        "currentRevision": "db-6f5d9c7b8",
        "observedGeneration": 1,
        "readyReplicas": 3,
        "replicas": 3,
        "updateRevision": "db-6f5d9c7b8",
        "updatedReplicas": 3,
    }
    return _object("apps/v1", "StatefulSet", "db", spec=spec, status=status)


def _numbered_pod(number: int, node: str) -> Raw:
    owner = _stateful_set()
    labels = {
        "apps.kubernetes.io/pod-index": str(number),
        "controller-revision-hash": "db-6f5d9c7b8",
        "statefulset.kubernetes.io/pod-name": f"db-{number}",
    }
    pod = _pod(f"db-{number}", owner["spec"]["template"], owner)
    pod["metadata"]["labels"].update(labels)
    pod["spec"]["volumes"] = [
        {"name": "data", "persistentVolumeClaim": {"claimName": f"data-db-{number}"}}
    ]
    return _run(pod, node)


def _claim(number: int) -> Raw:
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "10Gi"}},
        "storageClassName": "standard",
        "volumeMode": "Filesystem",
        "volumeName": f"pv-{number}",
    }
    annotations = {"pv.kubernetes.io/bind-completed": "yes"}
    return _object(
        "v1",
        "PersistentVolumeClaim",
        f"data-db-{number}",
        metadata={"annotations": annotations},
        spec=spec,
        status={"phase": "Bound"},
    )


def _volume(number: int) -> Raw:
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "10Gi"},
        "claimRef": {
            "kind": "PersistentVolumeClaim",
            "name": f"data-db-{number}",
            "namespace": _NAMESPACE,
            "uid": f"persistentvolumeclaim-data-db-{number}-uid",
        },
        "csi": {"driver": "disk.csi.example", "volumeHandle": f"vol-{number}"},
        "persistentVolumeReclaimPolicy": "Delete",
        "storageClassName": "standard",
        "volumeMode": "Filesystem",
    }
    status = {"phase": "Bound"}
    return _object("v1", "PersistentVolume", f"pv-{number}", namespace="", spec=spec, status=status)


def _job() -> Raw:
    """Return a Job of six completions, two at a time, of which one pod has succeeded."""
    labels = {"app": "import", "batch.kubernetes.io/job-name": "import", "job-name": "import"}
    template = pod_template(labels, "500m", class_name="nightly")
    template["spec"]["restartPolicy"] = "Never"
    spec = {
        "backoffLimit": 6,
        "completionMode": "NonIndexed",
        "completions": 6,
        "parallelism": 2,
        "selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": "job-import-uid"}},
        "suspend": False,
        "template": template,
    }
    status = {
        "active": 2,
        "ready": 2,
        "startTime": ago(hours=3),
        "succeeded": 1,
        "terminating": 0,
        "uncountedTerminatedPods": {},
    }
    return _object("batch/v1", "Job", "import", spec=spec, status=status)


def _job_pod(number: int, node: str) -> Raw:
    owner = _job()
    pod = _pod(f"import-{number}zzzz", owner["spec"]["template"], owner, 10)
    return _run(pod, node, hours=2)


def _ended_job_pod() -> Raw:
    pod = _job_pod(9, NODES[4])
    ended = {"exitCode": 0, "finishedAt": ago(hours=2), "reason": "Completed"}
    pod["status"]["phase"] = "Succeeded"
    pod["status"]["containerStatuses"][0]["state"] = {"terminated": ended}
    return pod


def _stopping_pod(node: str) -> Raw:
    pod = _run(_pod("old-shell", pod_template({"app": "shell"}, "100m"), None), node)
    gone = TAKEN + timedelta(seconds=20)
    pod["metadata"]["deletionTimestamp"] = f"{gone:%Y-%m-%dT%H:%M:%SZ}"
    pod["metadata"]["deletionGracePeriodSeconds"] = 30
    return pod


def _waiting_pod() -> Raw:
    """Return a pod that no node has room for."""
    pod = _pod("too-big", pod_template({"app": "big"}, "12"), None)
    pod["metadata"]["creationTimestamp"] = ago(minutes=40)
    text = "0/6 nodes are available: 1 node(s) were unschedulable, 5 Insufficient cpu."
    pod["status"]["conditions"] = [
        {
            "lastProbeTime": None,
            "lastTransitionTime": ago(minutes=40),
            "message": text,
            "reason": "Unschedulable",
            "status": "False",
            "type": "PodScheduled",
        }
    ]
    return pod


def _service(name: str) -> Raw:
    spec = {"clusterIP": "10.96.0.10", "selector": {"app": name}, "type": "ClusterIP"}
    return _object("v1", "Service", name, spec=spec)


def _budget(name: str, least: int | str) -> Raw:
    spec = {"minAvailable": least, "selector": {"matchLabels": {"app": name}}}
    status = {
        "currentHealthy": 4,
        "desiredHealthy": 3,
        "disruptionsAllowed": 1,
        "expectedPods": 4,
        "observedGeneration": 1,
    }
    return _object("policy/v1", "PodDisruptionBudget", name, spec=spec, status=status)


def _class(name: str, value: int) -> Raw:
    rest = {"preemptionPolicy": "PreemptLowerPriority", "value": value}
    return _object("scheduling.k8s.io/v1", "PriorityClass", name, namespace="", **rest)


def _node(name: str) -> Raw:
    amounts = {"cpu": "4", "ephemeral-storage": "100Gi", "memory": "8Gi", "pods": "110"}
    beat = {"lastHeartbeatTime": ago(), "lastTransitionTime": ago(days=9)}
    conditions = [
        {**beat, "status": "False", "type": "MemoryPressure"},
        {**beat, "status": "True", "type": "Ready", "reason": "KubeletReady"},
    ]
    labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}
    spec: Raw = {"podCIDR": "10.244.0.0/24"}
    if name == NODES[5]:
        spec["unschedulable"] = True
        spec["taints"] = [
            {
                "effect": "NoSchedule",
                "key": "node.kubernetes.io/unschedulable",
                "timeAdded": ago(hours=5),
            }
        ]
    status = {"allocatable": amounts, "capacity": amounts, "conditions": conditions}
    return _object(
        "v1", "Node", name, namespace="", metadata={"labels": labels}, spec=spec, status=status
    )
