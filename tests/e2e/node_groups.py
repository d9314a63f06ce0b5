"""A small cluster whose node groups grow and shrink in a replay, as files."""

from __future__ import annotations

from pathlib import Path

MANIFESTS = """
apiVersion: v1
kind: Node
metadata: {name: first}
status:
  allocatable: {cpu: "4", memory: 8Gi, pods: "110"}
---
apiVersion: v1
kind: Node
metadata: {name: idle, labels: {pool: special}}
spec: {taints: [{key: special, effect: NoSchedule}]}
status:
  allocatable: {cpu: "4", memory: 8Gi, pods: "110"}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: default}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: web, image: web, resources: {requests: {cpu: "3"}}}]
"""
"""Two of three pods need a node of "pool", and nobody needs the node of "special"."""

GROUPS = """
flags: {scale-down-unneeded-time: 20s, scale-down-delay-after-add: 10s}
groups:
- name: pool
  max: 5
  provisioningDelay: 60s
  template:
    status:
      capacity: {cpu: "4", memory: 8Gi, pods: "110"}
- name: special
  max: 5
  nodes: {labels: {pool: special}}
  copy: idle
"""


def growing(folder: Path) -> tuple[str, ...]:
    """Write the cluster's files, and return the arguments of its replay."""
    trace, groups = folder / "web.yaml", folder / "groups.yaml"
    trace.write_text(MANIFESTS, encoding="utf-8")
    groups.write_text(GROUPS, encoding="utf-8")
    return (str(trace), "--autoscaler", str(groups), "--until", "10m")
