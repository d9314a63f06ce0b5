"""Writes a List of nodes and pods as `kubectl get nodes,pods -A -o yaml` prints it.

Usage: python -m benchmarks.kubectl_list PODS > pods.yaml. 9,300 pods are 47 MB. What differs
between the pods of a cluster differs here, too: names, UIDs, addresses, times. 20 pods share an
owner.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from replay.hashing import name_suffix, object_uid

_PODS_PER_NODE, _PODS_PER_OWNER, _TEAMS = 30, 20, 17
_HEAD = "apiVersion: v1\nitems:\n"
_TAIL = 'kind: List\nmetadata:\n  resourceVersion: ""\n'
_NODE = """\
- apiVersion: v1
  kind: Node
  metadata:
    annotations:
      node.alpha.kubernetes.io/ttl: "0"
    creationTimestamp: "2026-01-05T08:00:00Z"
    labels:
      kubernetes.io/arch: amd64
      kubernetes.io/hostname: node-{number}
      kubernetes.io/os: linux
      topology.kubernetes.io/zone: zone-{zone}
    name: node-{number}
    resourceVersion: "{version}"
    uid: {uid}
  spec:
    podCIDR: {cidr}
    podCIDRs:
    - {cidr}
  status:
    allocatable:
      cpu: "32"
      ephemeral-storage: "190000000000"
      hugepages-2Mi: "0"
      memory: 128000Mi
      pods: "110"
    capacity:
      cpu: "32"
      ephemeral-storage: 200000000Ki
      hugepages-2Mi: "0"
      memory: 129000Mi
      pods: "110"
    conditions:
    - lastHeartbeatTime: "2026-02-01T10:0{digit}:10Z"
      lastTransitionTime: "2026-01-05T08:00:20Z"
      message: kubelet is posting ready status
      reason: KubeletReady
      status: "True"
      type: Ready
    nodeInfo:
      architecture: amd64
      kubeletVersion: v1.34.1
      operatingSystem: linux
"""
_POD = r"""
- apiVersion: v1
  kind: Pod
  metadata:
    annotations:
      cni.projectcalico.org/containerID: {sandbox}
      cni.projectcalico.org/podIP: {ip}/32
      kubectl.kubernetes.io/restartedAt: "2026-01-20T09:00:00+01:00"
      prometheus.io/port: "8080"
      prometheus.io/scrape: "true"
    creationTimestamp: "{time}"
    generateName: {app}-{rs}-
    labels:
      app: {app}
      app.kubernetes.io/instance: {app}
      app.kubernetes.io/version: {release}
      pod-template-hash: {rs}
      tier: {tier}
    name: {name}
    namespace: {team}
    ownerReferences:
    - apiVersion: apps/v1
      blockOwnerDeletion: true
      controller: true
      kind: ReplicaSet
      name: {app}-{rs}
      uid: {owner_uid}
    resourceVersion: "{version}"
    uid: {uid}
  spec:
    affinity:
      podAntiAffinity:
        preferredDuringSchedulingIgnoredDuringExecution:
        - podAffinityTerm:
            labelSelector:
              matchLabels:
                app: {app}
            topologyKey: kubernetes.io/hostname
          weight: 100
    containers:
    - args:
      - --port=8080
      - --config=/etc/{app}/config.yaml
      command:
      - /bin/sh
      - -c
      - |
        set -e
        exec /app/server --name "$POD_NAME" \
          --zone: x
      env:
      - name: POD_NAME
        valueFrom:
          fieldRef:
            apiVersion: v1
            fieldPath: metadata.name
      - name: JAVA_OPTS
        value: -Xmx512m -XX:+UseG1GC
      - name: DATABASE_URL
        value: postgres://db.{app}.svc.cluster.local:5432/{app}?sslmode=require
      envFrom:
      - configMapRef:
          name: {app}-config
      image: registry.example.com/{team}/{app}:{release}
      imagePullPolicy: IfNotPresent
      livenessProbe:
        failureThreshold: 3
        httpGet:
          path: /healthz
          port: http
          scheme: HTTP
        initialDelaySeconds: 10
        periodSeconds: 10
        successThreshold: 1
        timeoutSeconds: 1
      name: {app}
      ports:
      - containerPort: 8080
        name: http
        protocol: TCP
      readinessProbe:
        failureThreshold: 3
        httpGet:
          path: /ready
          port: http
          scheme: HTTP
        periodSeconds: 10
        successThreshold: 1
        timeoutSeconds: 1
      resources:
        limits:
          memory: 1Gi
        requests:
          cpu: 250m
          memory: 512Mi
      securityContext:
        allowPrivilegeEscalation: false
        capabilities:
          drop:
          - ALL
      terminationMessagePath: /dev/termination-log
      terminationMessagePolicy: File
      volumeMounts:
      - mountPath: /etc/{app}
        name: config
      - mountPath: /var/run/secrets/kubernetes.io/serviceaccount
        name: kube-api-access-{tok}
        readOnly: true
    dnsPolicy: ClusterFirst
    enableServiceLinks: true
    nodeName: {node}
    preemptionPolicy: PreemptLowerPriority
    priority: 0
    restartPolicy: Always
    schedulerName: default-scheduler
    securityContext: {{}}
    serviceAccount: default
    serviceAccountName: default
    terminationGracePeriodSeconds: 30
    tolerations:
    - effect: NoExecute
      key: node.kubernetes.io/not-ready
      operator: Exists
      tolerationSeconds: 300
    - effect: NoExecute
      key: node.kubernetes.io/unreachable
      operator: Exists
      tolerationSeconds: 300
    volumes:
    - configMap:
        defaultMode: 420
        name: {app}-config
      name: config
    - name: kube-api-access-{tok}
      projected:
        defaultMode: 420
        sources:
        - serviceAccountToken:
            expirationSeconds: 3607
            path: token
        - configMap:
            items:
            - key: ca.crt
              path: ca.crt
            name: kube-root-ca.crt
  status:
    conditions:
    - lastProbeTime: null
      lastTransitionTime: "{time}"
      status: "True"
      type: Initialized
    - lastProbeTime: null
      lastTransitionTime: "{time}"
      status: "True"
      type: Ready
    - lastProbeTime: null
      lastTransitionTime: "{time}"
      status: "True"
      type: PodScheduled
    containerStatuses:
    - containerID: containerd://{container}
      image: registry.example.com/{team}/{app}:{release}
      imageID: registry.example.com/{team}/{app}@sha256:{image}
      lastState: {{}}
      name: {app}
      ready: true
      restartCount: 0
      started: true
      state:
        running:
          startedAt: "{time}"
    hostIP: {host_ip}
    hostIPs:
    - ip: {host_ip}
    phase: Running
    podIP: {ip}
    podIPs:
    - ip: {ip}
    qosClass: Burstable
    startTime: "{time}"
"""[1:]


def kubectl_list(pods: int) -> Iterator[str]:
    """Yield the List, an object at a time."""
    nodes = max(1, pods // _PODS_PER_NODE)
    yield _HEAD
    yield from (_node(number) for number in range(nodes))
    yield from (_pod(number, nodes) for number in range(pods))
    yield _TAIL


def _node(number: int) -> str:
    return _NODE.format(
        number=number,
        uid=object_uid("Node", "", str(number)),
        zone=number % 3,
        version=1000 + number,
        cidr=f"10.{number // 250}.{number % 250}.0/24",
        digit=number % 10,
    )


def _pod(number: int, nodes: int) -> str:
    owner = number // _PODS_PER_OWNER
    app, team = f"app-{owner}", f"team-{owner % _TEAMS}"
    uid, owner_uid = object_uid("Pod", team, str(number)), object_uid("ReplicaSet", team, app)
    rs, tok = f"c{owner_uid[:8]}", f"t{name_suffix(owner_uid, number)}"
    return _POD.format(
        app=app,
        team=team,
        rs=rs,
        tok=tok,
        name=f"{app}-{rs}-{tok}",
        uid=uid,
        owner_uid=owner_uid,
        version=500_000 + 3 * number,
        tier="backend" if owner % 2 else "frontend",
        release=f"1.{owner % 9}.{owner % 7}",
        time=f"2026-01-{10 + owner % 20}T{number % 24:02}:{number % 60:02}:{7 * number % 60:02}Z",
        node=f"node-{7 * number % nodes}",
        ip=f"10.{number // 62_500}.{number // 250 % 250}.{number % 250}",
        host_ip=f"10.200.0.{7 * number % nodes % 250}",
        sandbox=uid.replace("-", "") * 2,
        container=owner_uid.replace("-", "") + uid.replace("-", ""),
        image=owner_uid.replace("-", "") * 2,
    )


if __name__ == "__main__":
    sys.stdout.writelines(kubectl_list(int(sys.argv[1])))
