"""A cluster of 12 nodes in three zones and three pools with 59 pods, as kubectl prints it.

Zones a, b and c have four nodes each: two of the pool `general`, one of `batch`, one of `gpu`. What
pods request of CPU, in thousandths of a core, and what is free (DaemonSets' pods request 100):

| node | zone | CPU | agent | other pods | free |
|---|---|---|---|---|---|
| worker-1 | a | 3800 | 100 | web 500, cart 1000, checkout 200, haproxy 300 (a static pod) | 1700 |
| worker-2 | b | 3800 | 100 | web 500, cart 1000, checkout 200, coredns 100, thumbs 800 | 1100 |
| worker-3 | c | 3800 | 100 | web 500, cart 1000, db-0 500, thumbs 800 | 900 |
| worker-4 | a | 3800 | 100 | web 500, kafka-0 1000, checkout 200, coredns 100, thumbs 800 | 1100 |
| worker-5 | b | 3800 | 100 | web 500, kafka-1 1000, checkout 200, metrics 100, legacy 400 | 1500 |
| worker-6 | c | 3800 | 100 | web 500, kafka-2 1000, db-1 500, thumbs 800, legacy 400 | 500 |
| batch-1 | a | 7800 | 100 | prometheus-0 1200, encode 2000, report 1000 | 3500 |
| batch-2 | b | 7800 | 100 | 2 encode 4000, report 1000, debug-shell 100 (it terminates) | 2600 |
| batch-3 | c | 7800 | 100 | encode 2000; the node is cordoned | 5700 |
| gpu-1, gpu-2 | a, b | 7800 | 100 | device plugin 100, inference 2000 and 1 of 2 GPUs | 5600 |
| gpu-3 | c | 7800 | 100 | device plugin 100, inference 2000, notebook 1000, both GPUs | 4600 |

One pod waits, jobs/rebuild with 1800. Memory is never short. Priorities are 5000 for kafka, db and
prometheus (class `data`), 1000 for web, cart, checkout and inference (`frontend`), 10 for encode
and report (`nightly`), 0 for thumbs, legacy, notebook and debug-shell, -5 for rebuild (`idle`).

Volumes of kafka, db and prometheus belong to a zone. web spreads over zones (maxSkew 1,
DoNotSchedule); the pods of cart, of checkout and of kafka refuse to share a node. Budgets: cart
(minAvailable 2 of 3), checkout (maxUnavailable 25 % of 4), kafka (maxUnavailable 1 of 3), db
(minAvailable 1 of 2), encode (minAvailable 50 % of 4), inference (minAvailable 2 of 3), coredns
(maxUnavailable 1 of 2); web, thumbs and legacy have none.
"""

from __future__ import annotations

import copy
from typing import Any

from tests.kubectl_objects import (
    SYSTEM,
    Raw,
    ago,
    bound_claim,
    budget,
    container,
    cordon,
    daemon_pod,
    daemon_set,
    deployment,
    end,
    job,
    job_labels,
    kubernetes_object,
    node,
    numbered_pod,
    owner_references,
    pod_template,
    priority_class,
    refuse,
    run_on,
    service,
    stateful_set,
    stop,
    waiting_pod,
)

ZONES = ("zone-a", "zone-b", "zone-c")
GENERAL = tuple(f"worker-{number}" for number in range(1, 7))
BATCH = tuple(f"batch-{number}" for number in range(1, 4))
GPU = tuple(f"gpu-{number}" for number in range(1, 4))
_ZONE = "topology.kubernetes.io/zone"
_HOST = "kubernetes.io/hostname"
_GPU = "nvidia.com/gpu"
_IN_GENERAL: Raw = {"nodeSelector": {"pool": "general"}}
_ON_GPU: Raw = {
    "nodeSelector": {"pool": "gpu"},
    "tolerations": [{"effect": "NoSchedule", "key": _GPU, "operator": "Exists"}],
}
_EMPTY_DIR: Raw = {"volumes": [{"emptyDir": {}, "name": "scratch"}]}


def zoned_cluster() -> list[Raw]:
    """Return the objects as `kubectl get -A` lists them; each call makes new ones."""
    items = [
        *_nodes(),
        *_shop(),
        *_media(),
        *_jobs(),
        *_ml(),
        *_system(),
        *_monitoring(),
        *(
            priority_class(name, value)
            for name, value in (
                ("data", 5000),
                ("frontend", 1000),
                ("nightly", 10),
                ("idle", -5),
                ("system-cluster-critical", 2_000_000_000),
                ("system-node-critical", 2_000_001_000),
            )
        ),
        kubernetes_object(
            "storage.k8s.io/v1",
            "StorageClass",
            "standard",
            namespace="",
            provisioner="disk.csi.example",
            reclaimPolicy="Delete",
            volumeBindingMode="WaitForFirstConsumer",
        ),
        *(
            kubernetes_object("v1", "Namespace", name, namespace="", status={"phase": "Active"})
            for name in ("default", "jobs", SYSTEM, "media", "ml", "monitoring", "shop")
        ),
    ]
    return copy.deepcopy(items)


def _nodes() -> list[Raw]:
    """Return the nodes. Of the memory, 924Mi are reserved, and 100Mi are the eviction threshold."""
    nodes = []
    for pool, names, memory in (("general", GENERAL, 16), ("batch", BATCH, 32), ("gpu", GPU, 32)):
        cores = 4 if pool == "general" else 8
        for number, name in enumerate(names):
            capacity = {
                "cpu": str(cores),
                "ephemeral-storage": "100Gi",
                "memory": f"{memory}Gi",
                "pods": "110",
            }
            allocatable = {
                **capacity,
                "cpu": f"{cores * 1000 - 200}m",
                "ephemeral-storage": "90Gi",
                "memory": f"{memory - 1}Gi",
            }
            if pool == "gpu":
                capacity[_GPU] = allocatable[_GPU] = "2"
            labels = {"pool": pool, _ZONE: ZONES[number % 3]}
            nodes.append(node(name, capacity, allocatable, **labels))
            if pool == "gpu":
                taint = {"effect": "NoSchedule", "key": _GPU, "value": "present"}
                nodes[-1]["spec"]["taints"] = [taint]
    return [*nodes[:8], cordon(nodes[8], hours=5), *nodes[9:]]


def _shop() -> list[Raw]:
    labels = {"app": "web"}
    spread = {
        "labelSelector": {"matchLabels": labels},
        "matchLabelKeys": ["pod-template-hash"],
        "maxSkew": 1,
        "topologyKey": _ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
    }
    limits = {"memory": "768Mi"}
    web = pod_template(
        labels,
        "500m",
        "512Mi",
        "frontend",
        limits=limits,
        topologySpreadConstraints=[spread],
        **_IN_GENERAL,
    )
    sidecar = container(
        "proxy", "proxy", {"cpu": "100m", "memory": "64Mi"}, {"memory": "128Mi"}
    ) | {"restartPolicy": "Always"}
    cart = pod_template(
        {"app": "cart"},
        "900m",
        "512Mi",
        "frontend",
        limits={"memory": "1Gi"},
        initContainers=[sidecar],
        **_apart("cart"),
        **_IN_GENERAL,
    )
    checkout = pod_template(
        {"app": "checkout"}, "200m", "256Mi", "frontend", **_apart("checkout"), **_IN_GENERAL
    )
    kafka = stateful_set(
        "kafka",
        3,
        pod_template(
            {"app": "kafka"},
            "1",
            "4Gi",
            "data",
            limits={"memory": "4Gi"},
            **_apart("kafka"),
            **_IN_GENERAL,
        ),
        parallel=True,
    )
    database = stateful_set(
        "db",
        2,
        pod_template({"app": "db"}, "500m", "2Gi", "data", limits={"memory": "2Gi"}, **_IN_GENERAL),
    )
    items = [
        *_placed("web", web, GENERAL, priority=1000),
        *_placed("cart", cart, GENERAL[:3], priority=1000),
        *_placed("checkout", checkout, [GENERAL[number] for number in (0, 1, 3, 4)], priority=1000),
        kafka,
        *(numbered_pod(kafka, number, GENERAL[3 + number], 5000) for number in range(3)),
        database,
        *(numbered_pod(database, number, GENERAL[(2, 5)[number]], 5000) for number in range(2)),
        service("web"),
        service("kafka"),
        budget("cart", 3, 1, minAvailable=2),
        budget("checkout", 4, 1, maxUnavailable="25%"),
        budget("kafka", 3, 1, maxUnavailable=1),
        budget("db", 2, 1, minAvailable=1),
    ]
    for number, zone in enumerate(ZONES):
        items += bound_claim(f"kafka-{number}", f"pv-kafka-{number}", zone=zone)
    for number in range(2):
        items += bound_claim(f"db-{number}", f"pv-db-{number}", zone="zone-c")
    web_set = next(item for item in items if item["kind"] == "ReplicaSet")
    return [
        *items,
        _old_replica_set(web_set),
        _evicted_pod(web_set),
        end(
            run_on(
                waiting_pod("migrate", pod_template({"app": "migrate"}, "500m"), None), BATCH[1]
            ),
            hours=6,
        ),
        _autoscaler("web", 6, 40),
        kubernetes_object(
            "v1",
            "ResourceQuota",
            "pods",
            spec={"hard": {"pods": "38"}},
            status={"hard": {"pods": "38"}, "used": {"pods": "18"}},
        ),
    ]


def _media() -> list[Raw]:
    """Return thumbs, whose pod on worker-4 is the youngest, and a ReplicationController."""
    thumbs = pod_template({"app": "thumbs"}, "800m", "512Mi", **_IN_GENERAL)
    nodes = [GENERAL[number] for number in (1, 2, 3, 5)]
    items = _placed("thumbs", thumbs, nodes, namespace="media")
    young = next(item for item in items if item["spec"].get("nodeName") == "worker-4")
    run_on(young, "worker-4", hours=1)
    template = pod_template({"app": "legacy"}, "400m", **_IN_GENERAL)
    legacy = kubernetes_object(
        "v1",
        "ReplicationController",
        "legacy",
        namespace="media",
        spec={"replicas": 2, "selector": {"app": "legacy"}, "template": template},
        status={"observedGeneration": 1, "readyReplicas": 2, "replicas": 2},
    )
    pods = [
        run_on(waiting_pod(f"legacy-{letters}", template, legacy), GENERAL[number])
        for letters, number in (("bcdfg", 4), ("hjklm", 5))
    ]
    return [*items, legacy, *pods]


def _jobs() -> list[Raw]:
    """Return the pool `batch`: encoders, a CronJob's Job half done; and the pod that waits."""
    encode = pod_template(
        {"app": "encode"}, "2", "2Gi", "nightly", nodeSelector={"pool": "batch"}, **_EMPTY_DIR
    )
    nodes = (BATCH[0], BATCH[1], BATCH[1], BATCH[2])
    name = "report-29540280"
    template = pod_template(
        job_labels(name, "report"),
        "1",
        "1Gi",
        "nightly",
        nodeSelector={"pool": "batch"},
        restartPolicy="Never",
    )
    report = job(name, 6, template, namespace="jobs", hours=7.5)
    cron_job = kubernetes_object(
        "batch/v1",
        "CronJob",
        "report",
        namespace="jobs",
        spec={
            "concurrencyPolicy": "Forbid",
            "failedJobsHistoryLimit": 1,
            "jobTemplate": {
                "metadata": {"creationTimestamp": None},
                "spec": {
                    "completions": 6,
                    "parallelism": 2,
                    "template": pod_template(
                        {"app": "report"},
                        "1",
                        "1Gi",
                        "nightly",
                        nodeSelector={"pool": "batch"},
                        restartPolicy="Never",
                    ),
                },
            },
            "schedule": "0 2 * * *",
            "successfulJobsHistoryLimit": 3,
            "suspend": False,
        },
        status={"lastScheduleTime": ago(hours=7.5)},
    )
    report["metadata"]["ownerReferences"] = owner_references(cron_job)
    pods = [
        run_on(waiting_pod(f"{name}-{letters}", template, report, 10), where, hours=hours)
        for letters, where, hours in (
            ("bcdfg", BATCH[0], 2),
            ("hjklm", BATCH[1], 2),
            ("npqrs", BATCH[2], 7.5),
        )
    ]
    rebuild = waiting_pod(
        "rebuild",
        pod_template({"app": "rebuild"}, "1800m", "1Gi", "idle", **_IN_GENERAL),
        None,
        -5,
        namespace="jobs",
    )
    text = (
        "0/12 nodes are available: 1 node(s) were unschedulable, 2 node(s) didn't match Pod's node "
        "affinity/selector, 3 node(s) had untolerated taint {nvidia.com/gpu: present}, 6 "
        "Insufficient cpu. preemption: 0/12 nodes are available: 12 No preemption victims found "
        "for incoming pod."
    )
    shell = waiting_pod(
        "debug-shell", pod_template({"app": "shell"}, "100m"), None, namespace="default"
    )
    return [
        *_placed("encode", encode, nodes, namespace="jobs", priority=10),
        budget("encode", 4, 2, namespace="jobs", minAvailable="50%"),
        cron_job,
        report,
        *pods[:2],
        end(pods[2], hours=2),
        refuse(rebuild, text, minutes=40),
        stop(run_on(shell, BATCH[1]), 20),
    ]


def _ml() -> list[Raw]:
    inference = pod_template({"app": "inference"}, "2", "4Gi", "frontend", **_ON_GPU)
    notebook = pod_template({"app": "notebook"}, "1", "4Gi", **_ON_GPU, **_EMPTY_DIR)
    for template in (inference, notebook):
        resources = template["spec"]["containers"][0]["resources"]
        resources["requests"][_GPU] = "1"
        resources["limits"] = {_GPU: "1"}
    return [
        *_placed("inference", inference, GPU, namespace="ml", priority=1000),
        budget("inference", 3, 1, namespace="ml", minAvailable=2),
        run_on(waiting_pod("notebook", notebook, None, namespace="ml"), GPU[2], hours=20),
    ]


def _system() -> list[Raw]:
    everywhere: Raw = {"tolerations": [{"operator": "Exists"}]}
    agent = daemon_set(
        "agent",
        12,
        pod_template(
            {"app": "agent"},
            "100m",
            "128Mi",
            "system-node-critical",
            limits={"memory": "256Mi"},
            **everywhere,
        ),
    )
    plugin = daemon_set(
        "device-plugin",
        3,
        pod_template({"app": "device-plugin"}, "100m", "64Mi", "system-node-critical", **_ON_GPU),
    )
    critical = ("system-cluster-critical", 2_000_000_000)
    coredns = pod_template(
        {"app": "coredns"}, "100m", "70Mi", critical[0], limits={"memory": "170Mi"}, **_IN_GENERAL
    )
    metrics = pod_template(
        {"app": "metrics"}, "100m", "200Mi", critical[0], **_IN_GENERAL, **_EMPTY_DIR
    )
    here = {"namespace": SYSTEM, "priority": critical[1]}
    return [
        agent,
        *(daemon_pod(f"agent-{name}", agent, name) for name in (*GENERAL, *BATCH, *GPU)),
        plugin,
        *(daemon_pod(f"device-plugin-{name}", plugin, name) for name in GPU),
        *_placed("coredns", coredns, (GENERAL[1], GENERAL[3]), **here),
        budget("coredns", 2, 1, namespace=SYSTEM, maxUnavailable=1),
        *_placed("metrics", metrics, (GENERAL[4],), **here),
        _static_pod(GENERAL[0]),
    ]


def _monitoring() -> list[Raw]:
    """Return a single replica that prefers the pool `batch`; its volume is in zone a."""
    preferred = {
        "preference": {
            "matchExpressions": [{"key": "pool", "operator": "In", "values": ["batch"]}]
        },
        "weight": 10,
    }
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [preferred]}}
    template = pod_template({"app": "prometheus"}, "1200m", "4Gi", "data", affinity=affinity)
    whole = stateful_set("prometheus", 1, template, namespace="monitoring")
    return [
        whole,
        numbered_pod(whole, 0, BATCH[0], 5000),
        *bound_claim("prometheus-0", "pv-prometheus-0", namespace="monitoring", zone="zone-a"),
    ]


def _placed(
    name: str, template: Raw, nodes: tuple[str, ...] | list[str], **options: Any
) -> list[Raw]:
    """Return a Deployment, its ReplicaSet, and a pod of two days on each of the nodes."""
    whole, replica_set, pods = deployment(name, len(nodes), template, **options)
    whole["spec"]["strategy"] = {
        "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"},
        "type": "RollingUpdate",
    }
    revision = {"deployment.kubernetes.io/revision": "2"}
    for obj in (whole, replica_set):
        obj["metadata"]["annotations"] = dict(revision)
    return [whole, replica_set, *map(run_on, pods, nodes)]


def _apart(app: str) -> Raw:
    """Return the affinity of pods that refuse to share a node."""
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": _HOST}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    return {"affinity": {"podAntiAffinity": required}}


def _old_replica_set(current: Raw) -> Raw:
    """Return the ReplicaSet of the revision before, which has no pods any more."""
    old = copy.deepcopy(current)
    old["metadata"].update(name="web-5c6b7d8f9", uid="replicaset-web-old-uid")
    old["metadata"]["annotations"] = {"deployment.kubernetes.io/revision": "1"}
    for labels in (
        old["metadata"]["labels"],
        old["spec"]["selector"]["matchLabels"],
        old["spec"]["template"]["metadata"]["labels"],
    ):
        labels["pod-template-hash"] = "5c6b7d8f9"
    old["spec"]["template"]["spec"]["containers"][0]["image"] = "registry.example/web:0"
    old["spec"]["replicas"] = 0
    old["status"] = {"observedGeneration": 2, "replicas": 0}
    return old


def _evicted_pod(owner: Raw) -> Raw:
    """Return a pod that a kubelet evicted yesterday; its ReplicaSet has replaced it long since."""
    name = f"{owner['metadata']['name']}-zz9zz"
    pod = run_on(waiting_pod(name, owner["spec"]["template"], owner, 1000), GENERAL[1], hours=30)
    pod["status"] = {
        "message": "The node was low on resource: memory. ",
        "phase": "Failed",
        "reason": "Evicted",
        "startTime": ago(hours=30),
    }
    return pod


def _static_pod(where: str) -> Raw:
    """Return the mirror of a pod that the kubelet of this node has from a file."""
    template = pod_template({"app": "haproxy"}, "300m", "128Mi", "system-node-critical")
    pod = waiting_pod(f"haproxy-{where}", template, None, 2_000_001_000, namespace=SYSTEM)
    hash_ = "0f1e2d3c4b5a69788796a5b4c3d2e1f0"
    pod["metadata"]["annotations"] = {
        "kubernetes.io/config.hash": hash_,
        "kubernetes.io/config.mirror": hash_,
        "kubernetes.io/config.seen": ago(days=2),
        "kubernetes.io/config.source": "file",
    }
    pod["metadata"]["ownerReferences"] = [
        {
            "apiVersion": "v1",
            "controller": True,
            "kind": "Node",
            "name": where,
            "uid": f"node-{where}-uid",
        }
    ]
    pod["spec"]["tolerations"] = [{"effect": "NoExecute", "operator": "Exists"}]
    return run_on(pod, where)


def _autoscaler(name: str, least: int, most: int) -> Raw:
    return kubernetes_object(
        "autoscaling/v2",
        "HorizontalPodAutoscaler",
        name,
        spec={
            "maxReplicas": most,
            "metrics": [
                {
                    "resource": {
                        "name": "cpu",
                        "target": {"averageUtilization": 70, "type": "Utilization"},
                    },
                    "type": "Resource",
                }
            ],
            "minReplicas": least,
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
        },
        status={"currentReplicas": least, "desiredReplicas": least},
    )
