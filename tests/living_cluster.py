"""A cluster in mid-life, as `kubectl get ... -A -o yaml` prints it.

Six nodes, three Deployments with budgets, a DaemonSet, a StatefulSet with claims, a Job half done,
PriorityClasses, a pod that terminates, one that waits; one node is cordoned.
"""

from __future__ import annotations

import copy

from tests.kubectl_objects import (
    TAKEN_NS,
    Raw,
    ago,
    bound_claim,
    budget,
    cordon,
    daemon_pod,
    daemon_set,
    deployment,
    end,
    job,
    job_labels,
    named,
    node,
    numbered_pod,
    pod_template,
    priority_class,
    refuse,
    run_on,
    service,
    stateful_set,
    stop,
    waiting_pod,
    write_list,
)

__all__ = ["NODES", "TAKEN_NS", "Raw", "ago", "living_cluster", "named", "write_list"]
NODES = tuple(f"worker-{number}" for number in range(1, 7))


def living_cluster() -> list[Raw]:
    """Return the objects, in the order in which kubectl lists the kinds; each call makes new ones.

    The nodes stand last but for the PriorityClasses, as `kubectl get all,...,nodes,priorityclasses`
    would have it.
    """
    web, web_set, web_pods = _deployment("web", 4, "500m", "frontend", 1000)
    api, api_set, api_pods = _deployment("api", 3, "1", "frontend", 1000)
    batch, batch_set, batch_pods = _deployment("report", 2, "1")
    for pods, places in ((web_pods, (0, 1, 2, 3)), (api_pods, (1, 2, 4)), (batch_pods, (0, 3))):
        for pod, number in zip(pods, places, strict=True):
            run_on(pod, NODES[number])
    run_on(batch_pods[1], NODES[3], hours=1)
    agent = daemon_set(
        "agent", len(NODES), pod_template({"app": "agent"}, "100m", "64Mi", "system-node-critical")
    )
    database = stateful_set("db", 3, pod_template({"app": "db"}, "1", "1Gi"))
    volumes = [bound_claim(f"db-{number}", f"pv-{number}") for number in range(3)]
    template = pod_template(
        job_labels("import", "import"), "500m", class_name="nightly", restartPolicy="Never"
    )
    imports = job("import", 6, template, hours=3)
    import_pods = [
        run_on(waiting_pod(f"import-{number}zzzz", template, imports, 10), NODES[4], hours=2)
        for number in (0, 1, 9)
    ]
    shell = waiting_pod("old-shell", pod_template({"app": "shell"}, "100m"), None)
    too_big = waiting_pod("too-big", pod_template({"app": "big"}, "12"), None)
    text = "0/6 nodes are available: 1 node(s) were unschedulable, 5 Insufficient cpu."
    amounts = {"cpu": "4", "ephemeral-storage": "100Gi", "memory": "8Gi", "pods": "110"}
    nodes = [node(name, amounts) for name in NODES]
    cordon(nodes[5], hours=5)
    items = [
        *web_pods,
        *api_pods,
        *batch_pods,
        *(daemon_pod(f"agent-{name[-1]}wxyz", agent, name) for name in NODES),
        *(numbered_pod(database, number, NODES[number]) for number in range(3)),
        *import_pods[:2],
        end(import_pods[2], hours=2),
        stop(run_on(shell, NODES[5]), 20),
        refuse(too_big, text, minutes=40),
        service("web"),
        agent,
        *(web, api, batch),
        *(web_set, api_set, batch_set),
        database,
        imports,
        budget("web", 4, 1, minAvailable=3),
        budget("api", 4, 1, minAvailable=2),
        budget("report", 4, 1, minAvailable="50%"),
        *(claim for claim, _ in volumes),
        *(volume for _, volume in volumes),
        *nodes,
        priority_class("frontend", 1000),
        priority_class("nightly", 10),
        priority_class("idle", -5),
    ]
    return copy.deepcopy(items)


def _deployment(
    name: str, replicas: int, cpu: str, class_name: str = "", priority: int = 0
) -> tuple[Raw, Raw, list[Raw]]:
    template = pod_template({"app": name}, cpu, class_name=class_name)
    return deployment(name, replicas, template, priority=priority)
