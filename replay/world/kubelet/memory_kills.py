"""OOM kills in a pod: when memory exceeds a container's or the pod's limit, and what is killed.

A kill is an action on the timeline at the exact time at which the usage curves exceed the limit, so
that use above a limit is never observed. A container is killed as a whole (the kubelet sets
memory.oom.group for cgroup v2); with singleProcessOOMKill in its settings, or the model
`oom-kill=process`, one process of it, which is taken to be a child: the container goes on, and its
usage begins anew.

Where only the sum over a pod's containers is known, the limits of containers cannot be checked,
only those of the pod and of its node (node_memory.py); the run has a note. To pick a victim under
these the sum is shared by memory requests, as in the kubelet's statistics (observations.py).

Containers that are killed again do not keep a replay running, unless their pod is a Job's, which
counts restarts.

Source: kubernetes v1.34 pkg/kubelet/kuberuntime/kuberuntime_container_linux.go,
generateLinuxContainerResources, and the setting singleProcessOOMKill; memory_limits.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from replay.world.api.pod_record import ContainerRun, PodRecord
from replay.world.kubelet import memory_limits, usage_curves
from replay.world.kubelet.container_ends import counts_restarts
from replay.world.kubelet.memory_limits import KubeletMemory, MemoryUser
from replay.world.kubelet.observations import request_shares
from replay.world.kubelet.pod_lifecycle import PodLifecycle
from replay.world.kubelet.pod_usage import MemoryPart
from replay.world.kubelet.usage import UsageProfiles
from replay.world.kubelet.usage_curves import StartedCurve
from replay.world.models import OomKill
from replay.world.state import WorldPart, WorldState
from replay.world.timeline import ActionKind
from reprieve.trace.v1beta1 import trace_pb2

UNBOUNDED = 1 << 62
SUM_ONLY = (
    "the memory of these pods' containers is known as a sum only, so that none is killed at its "
    "own limit; record with a source that reports containers, or use --usage 'SELECTOR "
    "memory.CONTAINER VALUE'"
)
ONE_PROCESS = (
    "by singleProcessOOMKill of the kubelets one process is killed above a memory limit, which is "
    "taken to be a child: the container goes on; where its main process uses the memory, give "
    "--model oom-kill=container"
)
REPEATED = (
    "containers that are OOM-killed again and again do not keep a replay running; use --until to "
    "replay it"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReachedLimit:
    """A limit that is exceeded, and the container that is killed for it."""

    limit_of: str
    limit_bytes: int
    container: str
    usage_bytes: int
    oom_score_adj: int | None = None

    @classmethod
    def of_victim(cls, limit_of: str, limit_bytes: int, user: MemoryUser) -> ReachedLimit:
        """Return a limit for which the kernel picks a victim."""
        return cls(
            limit_of=limit_of,
            limit_bytes=limit_bytes,
            container=user.key[1],
            usage_bytes=user.usage_bytes,
            oom_score_adj=user.oom_score_adj,
        )


class MemoryKills(WorldPart):
    """Plans and carries out the OOM kills in pods."""

    _due: dict[str, None]
    _sums_noted: set[str]

    def __init__(
        self,
        state: WorldState,
        lifecycle: PodLifecycle,
        profiles: UsageProfiles,
        kubelet: KubeletMemory,
    ) -> None:
        super().__init__(state)
        self._mode = state.models.oom_kill
        self._follows_kubelet = self._mode is OomKill.KUBELET
        if self._follows_kubelet:
            self._mode = OomKill.PROCESS if kubelet.kills_process else OomKill.CONTAINER
        self._lifecycle = lifecycle
        self._profiles = profiles
        self._due = {}
        lifecycle.memory_reached = self.check
        lifecycle.init_container_over = self.init_container_over

    @property
    def is_on(self) -> bool:
        """Return whether limits are enforced."""
        return self._mode is not OomKill.OFF

    @property
    def repeats(self) -> bool:
        """Return whether a kill or restart is planned of a container that was killed before."""
        return any(
            pod.containers
            and any(
                self._timeline.planned_ns(kind, pod.uid) is not None
                for kind in (ActionKind.MEMORY, ActionKind.RESTART)
            )
            for pod in self._cluster.pods.values()
        )

    @property
    def has_due(self) -> bool:
        """Return whether a limit is exceeded already, and must be checked at this instant."""
        return bool(self._due)

    def take_due(self, now_ns: int) -> None:
        """Check the limits that are exceeded at this instant."""
        due, self._due = self._due, {}
        for uid in due:
            if (pod := self._cluster.pods.get(uid)) is not None:
                self.check(now_ns, pod)

    def changed(self, now_ns: int, pod: PodRecord) -> None:
        """Plan the next check of a pod whose usage has begun, changed or ended."""
        if self.is_on:
            self._plan(now_ns, pod)

    def check(self, now_ns: int, pod: PodRecord) -> None:
        """Kill what exceeds its limit in a pod, and plan the next kill."""
        while (reached := self._reached(now_ns, pod)) is not None:
            self.kill(now_ns, pod, reached)
        self._plan(now_ns, pod)

    def init_container_over(self, now_ns: int, pod: PodRecord) -> str:
        """Kill the first init container that uses more than its limit when it starts.

        Returns its name, "" if there is none. Init containers take no time, so that nothing else
        of their usage counts.
        """
        if not self.is_on:
            return ""
        for container in pod.message.spec.init_containers:
            limit = memory_limits.container_limit(container)
            if limit is None or memory_limits.is_sidecar(container):
                continue
            usage = self._profiles.first_memory(pod, container.name)
            if usage > limit:
                reached = ReachedLimit(
                    limit_of="container",
                    limit_bytes=limit,
                    container=container.name,
                    usage_bytes=limit,
                )
                self._record(now_ns, pod, reached, survives=False)
                return container.name
        return ""

    # Plans

    def _plan(self, now_ns: int, pod: PodRecord) -> None:
        """Plan a check; what is exceeded now is checked before any node is stepped."""
        has_ended = pod.is_terminal or pod.uid not in self._cluster.pods
        if has_ended:
            self._sums_noted.discard(pod.uid)
        at_ns = None if has_ended else self._over_ns(now_ns, pod)
        # Memory of no container may exceed a limit with nothing left to kill.
        if at_ns == now_ns and self._reached(now_ns, pod) is not None:
            self._due[pod.uid] = None
        if at_ns is None or at_ns == now_ns:
            self._timeline.cancel(ActionKind.MEMORY, pod.uid)
        else:
            idle = self.is_repeated(pod)
            self._timeline.plan(at_ns, ActionKind.MEMORY, pod.uid, idle=idle)

    def _over_ns(self, now_ns: int, pod: PodRecord) -> int | None:
        """Return when a limit of the pod or of a container is exceeded first, None for never."""
        parts = self._parts(pod)
        if not parts:
            return None
        self._note_sum(now_ns, pod, parts)
        times_ns = [
            usage_curves.first_over_ns(_curves(parts, name), now_ns, limit)
            for name, limit in _limits(pod)
        ]
        if (limit := memory_limits.pod_limit(pod.kubelet_message.spec)) is not None:
            times_ns.append(usage_curves.first_over_ns(_curves(parts), now_ns, limit))
        return min((at_ns for at_ns in times_ns if at_ns is not None), default=None)

    def _note_sum(self, now_ns: int, pod: PodRecord, parts: Sequence[MemoryPart]) -> None:
        """Note a pod with limits of containers that cannot be checked, once it uses anything."""
        shared = [part for part in parts if part.is_shared]
        if not shared or pod.uid in self._sums_noted or not any(_limits(pod)):
            return
        if usage_curves.first_over_ns(_curves(shared), now_ns, 0) is not None:
            self._sums_noted.add(pod.uid)
            self._journal.note("usage", SUM_ONLY)

    def is_repeated(self, pod: PodRecord) -> bool:
        """Return whether the pod's kills may repeat forever, so that they do not prolong a run."""
        if counts_restarts(pod):
            return False
        return bool(pod.containers) or self._profiles.replaces(pod)

    # What is exceeded

    def _parts(self, pod: PodRecord) -> list[MemoryPart]:
        return self._profiles.memory_parts(pod, UNBOUNDED, limits=False)

    def _reached(self, now_ns: int, pod: PodRecord) -> ReachedLimit | None:
        """Return a limit of a pod that is exceeded now, None if there is none."""
        parts = self._parts(pod)
        for name, limit in _limits(pod):
            if usage_curves.exact_bytes(_curves(parts, name), now_ns) > limit:
                return ReachedLimit(
                    limit_of="container", limit_bytes=limit, container=name, usage_bytes=limit
                )
        of_pod = memory_limits.pod_limit(pod.kubelet_message.spec)
        if of_pod is None or usage_curves.exact_bytes(_curves(parts), now_ns) <= of_pod:
            return None
        victim = memory_limits.victim(self.users(now_ns, pod), of_pod)
        return None if victim is None else ReachedLimit.of_victim("pod", of_pod, victim)

    def users(self, now_ns: int, pod: PodRecord) -> Iterator[MemoryUser]:
        """Yield the running containers of a pod with what they use now; a sum is shared."""
        node = self._cluster.nodes.get(pod.node_name)
        capacity = memory_limits.memory_capacity(node) if node is not None else 0
        parts = self._profiles.memory_parts(pod, UNBOUNDED)
        shared = usage_curves.exact_bytes(_curves(parts, ""), now_ns)
        running = [
            container
            for container in memory_limits.long_running(pod.message.spec)
            if (run := pod.containers.get(container.name)) is None or run.runs
        ]
        for container, share in request_shares(running):
            known = usage_curves.exact_bytes(_curves(parts, container.name), now_ns)
            yield MemoryUser(
                key=(pod.uid, container.name),
                usage_bytes=known + share(shared),
                oom_score_adj=memory_limits.oom_score_adj(pod.message, container, capacity),
            )

    # Kills

    def kill(self, now_ns: int, pod: PodRecord, reached: ReachedLimit) -> None:
        """Kill a container, or one process of it, for a limit that is exceeded."""
        name = reached.container
        survives = self._mode is OomKill.PROCESS and self._starts_below(pod, reached)
        self._record(now_ns, pod, reached, survives=survives)
        if survives:
            if self._follows_kubelet:
                self._journal.note("usage", ONE_PROCESS)
            run = pod.containers.setdefault(name, ContainerRun(changed_ns=now_ns))
            run.changed_ns = now_ns
            self._lifecycle.usage_changed(now_ns, pod)
        else:
            self._lifecycle.kills.kill(now_ns, pod, name)

    def _starts_below(self, pod: PodRecord, reached: ReachedLimit) -> bool:
        """Return whether a container's usage is below the limit after its restart."""
        parts = self._parts(pod)
        first = sum(part.curve.used(0) for part in parts if part.container == reached.container)
        return first < reached.limit_bytes and reached.limit_of == "container"

    def _record(
        self, now_ns: int, pod: PodRecord, reached: ReachedLimit, *, survives: bool
    ) -> None:
        killed = trace_pb2.OomKilled(
            node_name=pod.node_name,
            container=reached.container,
            limit_of=reached.limit_of,
            limit_bytes=reached.limit_bytes,
            usage_bytes=reached.usage_bytes,
            oom_score_adj=reached.oom_score_adj,
            container_survives=survives,
        )
        self._journal.oom_killed(now_ns, pod, killed)


def _limits(pod: PodRecord) -> list[tuple[str, int]]:
    """Return the limits of the pod's containers, by name."""
    limits = (
        (container.name, memory_limits.container_limit(container))
        for container in memory_limits.long_running(pod.kubelet_message.spec)
    )
    return [(name, limit) for name, limit in limits if limit is not None]


def _curves(parts: Sequence[MemoryPart], container: str | None = None) -> list[StartedCurve]:
    """Return the curves of a container; "": those without a container, None: all."""
    return [(part.start_ns, part.curve) for part in parts if container in (None, part.container)]
