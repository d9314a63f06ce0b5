"""Silent kubelets: which actions of their pods wait, and until when.

- A kubelet that does not report (Ready is Unknown, or the run let it fail) carries out nothing
  that a watch would see. Nor does that of a node that was deleted.
- One that reports Ready=False acts by the reason that its message names. While the container
  runtime is down or its pod lifecycle event generator (PLEG) is not healthy, it synchronizes no
  pod. While only the pod network is not ready, it starts no pod but those of the host's network,
  and the others stop as usual. A message that names neither is taken as the former: a heartbeat
  alone, which comes every 5 minutes at least, does not say that pods are synchronized.

Waiting actions are carried out at once when the kubelet acts again.

Source: kubernetes v1.34 pkg/kubelet/kubelet.go, syncLoop (runtimeErrors: "Skipping pod
synchronization"), SyncPod (networkErrors); runtime.go, runtimeState; nodestatus/setters.go,
ReadyCondition; nodeStatusReportFrequency.
"""

from __future__ import annotations

from collections import Counter
from enum import Enum

from replay.world.api.node_health import ready_condition
from replay.world.api.pod_record import PodRecord
from replay.world.state import WorldPart, WorldState
from replay.world.timeline import Action, ActionKind
from reprieve.kube.v1beta1 import node_pb2

_STARTS = frozenset({ActionKind.KUBELET_SEES, ActionKind.START, ActionKind.RESTART})
_NETWORK_ONLY = "container runtime network not ready"
_OF_PODS = ("container runtime is down", "container runtime status check", "is not healthy")


class Hold(Enum):
    """The actions of a node's pods that wait."""

    ALL = "all"
    STARTS = "those that start a pod with a network of its own"


def hold_by_condition(node: node_pb2.Node) -> Hold | None:
    """Return the hold that a node's condition Ready implies, None if its kubelet acts."""
    ready = ready_condition(node)
    if ready is None or ready.status == "True":
        return None
    names_pods = any(text in ready.message for text in _OF_PODS)
    if ready.status == "False" and _NETWORK_ONLY in ready.message and not names_pods:
        return Hold.STARTS
    return Hold.ALL


class SilentKubelets(WorldPart):
    """The nodes whose kubelets do not act, and the actions that wait for them.

    stuck: how often a terminating pod could not end, by node.
    """

    _holds: dict[str, Hold]
    _waiting: dict[str, dict[Action, None]]
    stuck: Counter[str]

    def __init__(self, state: WorldState) -> None:
        super().__init__(state)
        self._waiting = {}

    def __len__(self) -> int:
        return len(self._holds)

    def __contains__(self, name: str) -> bool:
        """Return whether a node's kubelet carries out nothing."""
        return self._holds.get(name) is Hold.ALL

    def hold_of(self, name: str) -> Hold | None:
        """Return what waits for a node's kubelet."""
        return self._holds.get(name)

    def set(self, now_ns: int, name: str, hold: Hold | None) -> None:
        """Change what waits for a node's kubelet, and plan for now what waits no longer."""
        if hold is self._holds.get(name):
            return
        if hold is None:
            del self._holds[name]
        else:
            self._holds[name] = hold
        for action in self._waiting.pop(name, {}):
            pod = self._cluster.pods.get(action.key)
            if pod is not None and not self.holds_back(action, pod):
                self._timeline.plan(now_ns, action.kind, action.key)

    def drop(self, name: str) -> None:
        """Forget a node, and what waits for it."""
        self._holds.pop(name, None)
        self._waiting.pop(name, None)

    def holds_back(self, action: Action, pod: PodRecord) -> bool:
        """Return whether an action of a pod's kubelet waits, and keep it for later if it does."""
        if not self._holds:
            return False
        name = pod.node_name
        hold = self._holds.get(name)
        if hold is None:
            return False
        is_start = action.kind in _STARTS and not pod.message.spec.host_network
        if hold is Hold.STARTS and not is_start:
            return False
        self._waiting.setdefault(name, {})[action] = None
        if action.kind is ActionKind.STOPPED and pod.is_terminating:
            self.stuck[name] += 1
        return True
