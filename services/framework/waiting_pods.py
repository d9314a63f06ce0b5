"""Pods that plugins hold at Permit: assumed on their nodes, and not bound yet.

A pod waits for each plugin that asked for it, until that plugin allows it or the plugin's time-out
ends. It goes on when the last one has allowed it; the first rejection, a time-out among them, ends
the wait. Plugins decide about waiting pods from any of their methods; the scheduler carries the
decisions out when the attempt that is under way has ended.

Source: kubernetes v1.34 pkg/scheduler/framework/runtime/waiting_pods_map.go; framework.go,
RunPermitPlugins (maxTimeout), WaitOnPermit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from services.framework.status import Code, Status
from services.kube.pod import Pod
from services.kube.time import SECOND_NS, format_duration

TIMEOUT_NS_MAX = 15 * 60 * SECOND_NS
"""How long a plugin may hold a pod at most; a longer time-out is cut to it."""


class Wait(NamedTuple):
    """A Permit plugin's answer: hold the pod, for 15 minutes at most."""

    timeout_ns: int


class Deadline(NamedTuple):
    """When a plugin's wait ends, ns, and how long it is."""

    at_ns: int
    timeout_ns: int


@dataclass(slots=True, kw_only=True)
class WaitingPod:
    """A pod that waits on a node; `plugins` are those that have not allowed it yet."""

    pod: Pod
    node_name: str
    plugins: dict[str, Deadline]


class WaitingPods:
    """The waiting pods of all profiles, in the order in which they began to wait."""

    def __init__(self) -> None:
        self._pods: dict[str, WaitingPod] = {}
        self._decided: dict[str, Status | None] = {}

    def __iter__(self) -> Iterator[WaitingPod]:
        """Iterate over the pods that still wait; they may be decided meanwhile."""
        return iter([*self._pods.values()])

    def __contains__(self, uid: str) -> bool:
        return uid in self._pods

    def __len__(self) -> int:
        return len(self._pods)

    def get(self, uid: str) -> WaitingPod | None:
        """Return a pod that waits."""
        return self._pods.get(uid)

    def allow(self, uid: str, plugin: str) -> None:
        """Let a plugin wait no longer for a pod; one that does not wait is ignored."""
        waiting = self._pods.get(uid)
        if waiting is None or plugin not in waiting.plugins:
            return
        del waiting.plugins[plugin]
        if not waiting.plugins:
            self._decide(uid, None)

    def reject(self, uid: str, plugin: str, message: str = "") -> None:
        """Refuse a pod in a plugin's name; one that does not wait is ignored."""
        if uid in self._pods:
            reasons = (message,) if message else ()
            status = Status(code=Code.UNSCHEDULABLE, plugin=plugin, reasons=reasons)
            self._decide(uid, status)

    # The scheduler's side

    def hold(self, pod: Pod, node_name: str, waits: Mapping[str, int], now_ns: int) -> None:
        """Let a pod wait; `waits` are the plugins' time-outs, ns."""
        plugins = {
            plugin: Deadline(now_ns + min(wait_ns, TIMEOUT_NS_MAX), min(wait_ns, TIMEOUT_NS_MAX))
            for plugin, wait_ns in waits.items()
        }
        self.restore(WaitingPod(pod=pod, node_name=node_name, plugins=plugins))

    def restore(self, waiting: WaitingPod) -> None:
        """Let a pod wait as it did in another session."""
        self._pods[waiting.pod.uid] = waiting

    def expire(self, now_ns: int) -> None:
        """Reject the pods for which a plugin's time-out is over."""
        for waiting in self:
            due = [(deadline, plugin) for plugin, deadline in waiting.plugins.items()]
            deadline, plugin = min(due)
            if deadline.at_ns <= now_ns:
                waited = format_duration(deadline.timeout_ns)
                text = f"rejected due to timeout after waiting {waited} at plugin {plugin}"
                self.reject(waiting.pod.uid, plugin, text)

    @property
    def next_deadline_ns(self) -> int | None:
        """Return when the first time-out ends, None if no pod waits."""
        deadlines = (deadline.at_ns for waiting in self for deadline in waiting.plugins.values())
        return min(deadlines, default=None)

    def take_decided(self) -> list[tuple[str, Status | None]]:
        """Return the pods that wait no longer, by UID, and why they are refused (None: allowed)."""
        decided, self._decided = self._decided, {}
        return [*decided.items()]

    def _decide(self, uid: str, status: Status | None) -> None:
        del self._pods[uid]
        self._decided[uid] = status
