"""A cluster in which everything takes its time at once: all that a checkpoint may find half done.

The zoned cluster (tests/zoned_cluster.py) with 52 small nodes of a fourth zone, `edge-NN`, and the
options of a replay in which, some minutes after its beginning,

- a release rolls out Deployments (one is paused, one does not become ready before its deadline, one
  is Recreate), a DaemonSet and StatefulSets of both kinds, with `minReadySeconds`;
- an upgrade and a drain are blocked by budgets, and by pods that finalizers hold;
- most of the fourth zone is silent, so that its nodes are tainted every 100 s; pods terminate on
  silent nodes, one of which the snapshot has as not ready;
- containers are OOM-killed and wait for their restart, and a node is under memory pressure;
- a quota refuses pods, whose controllers try again as Jobs end;
- statuses of budgets, readiness, starts and stops take time.

`everything_under_way` writes the files; a seed varies sizes and times.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import yaml

from tests.kubectl_objects import (
    Raw,
    ago,
    budget,
    container,
    deployment,
    kubernetes_object,
    named,
    node,
    pod_template,
    run_on,
    stop,
    waiting_pod,
    write_list,
)
from tests.zoned_cluster import BATCH, GENERAL, GPU, zoned_cluster

EDGE_NODES, EDGE_FAILED = 52, 30
"""Nodes of the fourth zone: more than 50, of which more than 55 % fail."""
_SMALL = "small"
_HELD = {"finalizers": ["example.com/hold"]}


def everything_under_way(chance: random.Random, folder: Path) -> list[str]:
    """Write cluster.yaml and release.yaml; return the arguments of a replay with both."""
    cluster = write_list(folder / "cluster.yaml", _cluster(chance))
    release = folder / "release.yaml"
    release.write_text(yaml.safe_dump_all(_release(chance)))
    seconds = chance.choice((1, 7, 15))
    return [
        str(cluster),
        *("--until", chance.choice(("9m", "12m"))),
        *("--apply", f"{release},at={chance.choice((20, 60))}s"),
        *("--drain", f"pool=general,uncordon-after=40s,at={chance.choice((40, 90))}s"),
        *("--drain", f"{BATCH[0]},at=30s,order=youngest"),
        *("--fail", f"rack=a,at=10s,for={chance.choice((6, 8))}m"),
        *("--fail", f"{GPU[0]},at=2m"),
        *("--usage", f"app=leaky memory 100Mi+{chance.choice((200, 600))}Mi/m"),
        *("--usage", "app=hungry memory 1Gi+4Gi/m"),
        *("--set", "evictionHard.memory.available=2Gi"),
        *("--model", f"budget-delay={seconds}s"),
        *("--model", f"preemption-delay={seconds}s"),
        *("--model", f"ready-delay={chance.choice((5, 20))}s"),
        *("--model", "start-delay=2s", "--model", "shutdown=12s", "--model", "image-pull=3s"),
        *("--model", "service-time=50s", "--model", "node-grace=20s"),
        *chance.choice(((), ("--model", "bind-cost=5ms"), ("--seed", "7", "--batch-size", "3"))),
    ]


def _cluster(chance: random.Random) -> list[Raw]:
    items = zoned_cluster()
    _silence(named(items, "Node", GPU[2]))
    stop(named(items, "Pod", "notebook"), 15)
    named(items, "Pod", "debug-shell")["metadata"].update(_HELD)
    named(items, "Deployment", "thumbs")["spec"]["strategy"] = {"type": "Recreate"}
    capacity = {"cpu": "1", "memory": "4Gi", "pods": "20"}
    for number in range(EDGE_NODES):
        labels: Raw = {"pool": "edge", "topology.kubernetes.io/zone": "zone-d"}
        labels["rack"] = "a" if number < EDGE_FAILED else "b"
        items.append(node(f"edge-{number:02}", capacity, **labels))
    return [
        *items,
        *_edge(chance.randrange(35, 60)),
        *_of_memory(),
        *_of_quota(chance.randrange(3, 6)),
        *_held(),
        budget("legacy", 2, 0, namespace="media", minAvailable=2),
        budget("prometheus", 1, 0, namespace="monitoring", minAvailable=1),
    ]


def _silence(silent: Raw) -> None:
    """Let a node have sent no status for two minutes before the cluster was printed."""
    ready = next(
        condition for condition in silent["status"]["conditions"] if condition["type"] == "Ready"
    )
    ready.update(status="Unknown", reason="NodeStatusUnknown", lastTransitionTime=ago(minutes=2))
    silent["spec"].setdefault("taints", []).extend(
        {"effect": effect, "key": "node.kubernetes.io/unreachable", "timeAdded": ago(minutes=2)}
        for effect in ("NoSchedule", "NoExecute")
    )


def _edge(replicas: int) -> list[Raw]:
    """Return a Deployment of the fourth zone whose pods stay for 20 s on a silent node."""
    tolerated: Raw = {
        "effect": "NoExecute",
        "key": "node.kubernetes.io/unreachable",
        "operator": "Exists",
        "tolerationSeconds": 20,
    }
    template = pod_template(
        {"app": "edge"}, "300m", "128Mi", nodeSelector={"pool": "edge"}, tolerations=[tolerated]
    )
    whole, _, _ = deployment("edge", replicas, template, namespace="media")
    return [_new(whole)]


def _of_memory() -> list[Raw]:
    limits = {"memory": "512Mi"}
    leaky = pod_template({"app": "leaky"}, "100m", "128Mi", "nightly", limits=limits)
    hungry = pod_template(
        {"app": "hungry"}, "100m", "1Gi", "nightly", nodeSelector={"pool": "batch"}
    )
    return [
        _new(deployment(name, 3, template, namespace="media")[0])
        for name, template in (("leaky", leaky), ("hungry", hungry))
    ]


def _of_quota(pods: int) -> list[Raw]:
    """Return a namespace for a few pods, a Deployment that requests more, and a CronJob."""
    whole, _, _ = deployment("many", 4, pod_template({"app": "many"}, "50m"), namespace=_SMALL)
    template = pod_template({"app": "tick"}, "50m", restartPolicy="Never")
    job: Raw = {"completions": 3, "parallelism": 2, "template": template}
    return [
        kubernetes_object("v1", "Namespace", _SMALL, namespace="", status={"phase": "Active"}),
        kubernetes_object(
            "v1", "ResourceQuota", "few", namespace=_SMALL, spec={"hard": {"pods": str(pods)}}
        ),
        kubernetes_object(
            "batch/v1",
            "CronJob",
            "tick",
            namespace=_SMALL,
            spec={"schedule": "*/2 * * * *", "jobTemplate": {"spec": job}},
        ),
        _new(whole),
    ]


def _held() -> list[Raw]:
    """Return two pods with finalizers, on nodes that are drained."""
    template = pod_template({"app": "held"}, "100m", nodeSelector={"pool": "general"})
    whole, replica_set, pods = deployment("held", 2, template, namespace="media")
    for pod, where in zip(pods, GENERAL[:2], strict=True):
        run_on(pod, where)["metadata"].update(_HELD)
    bare = run_on(
        waiting_pod("kept", pod_template({"app": "kept"}, "100m"), None, namespace="media"),
        GENERAL[0],
    )
    bare["metadata"].update(_HELD)
    return [whole, replica_set, *pods, bare]


def _new(workload: Raw) -> Raw:
    """Let a workload have been applied just now: it has no status and no pods."""
    del workload["status"]
    return workload


def _release(chance: random.Random) -> list[Raw]:
    """Return what `kubectl apply` is given: a new image of every kind of workload."""
    rolling: Raw = {"minReadySeconds": chance.choice((5, 20)), "progressDeadlineSeconds": 90}
    broken = {"annotations": {"reprieve/ready-delay": "never"}}
    return [
        _changed("Deployment", "shop", "web", **rolling, replicas=chance.choice((6, 9))),
        _changed("Deployment", "shop", "cart", template=broken, **rolling),
        _changed("Deployment", "shop", "checkout", paused=True),
        _changed("Deployment", "media", "thumbs"),
        _changed("Deployment", "jobs", "encode", **rolling),
        _changed("StatefulSet", "shop", "kafka", minReadySeconds=10),
        _changed("StatefulSet", "shop", "db"),
        _changed("DaemonSet", "kube-system", "agent", updateStrategy=_surging("10%")),
    ]


def _surging(most: str) -> Raw:
    return {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": most}}


def _changed(kind: str, namespace: str, name: str, template: Raw | None = None, **spec: Any) -> Raw:
    main = {"name": "main", "image": container("main", name, {})["image"].replace(":1", ":2")}
    pods: Raw = {"spec": {"containers": [main]}}
    if template is not None:
        pods["metadata"] = template
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {**spec, "template": pods},
    }
