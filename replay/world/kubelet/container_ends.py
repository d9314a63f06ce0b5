"""Ends containers: with their pod, by themselves, or by the kernel, after which they restart.

A pod's containers exit together, when they have run for the pod's service time. A container that
the kernel kills ends alone and is restarted alone, after a backoff of its own, as its pod's
restartPolicy says; a sidecar is in any case. A pod ends with the last of its own containers.

Source: kubernetes v1.34 pkg/kubelet/kuberuntime/kuberuntime_manager.go, computePodActions and
doBackOff; container/helpers.go, ShouldContainerBeRestarted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial

from replay.world.api import conditions
from replay.world.api.conditions import KILLED_EXIT_CODE, RESET_NS, crash_backoff_ns, runs_again
from replay.world.api.pod_record import ContainerRun, PodRecord
from replay.world.kubelet.readiness import Readiness
from replay.world.state import WorldPart, WorldState
from replay.world.timeline import ActionKind
from reprieve.kube.v1beta1 import pod_pb2
from reprieve.trace.v1beta1 import trace_pb2
from services.rpc.kube.fields import time_ns


class ContainerKills(WorldPart):
    """Ends and restarts containers that the kernel kills.

    `end` writes a pod's end; `changed` is called when a container of a pod that goes on has ended
    or runs again.
    """

    def __init__(
        self,
        state: WorldState,
        readiness: Readiness,
        *,
        end: Callable[[int, PodRecord, conditions.Write], None],
        changed: Callable[[int, PodRecord], None],
    ) -> None:
        super().__init__(state)
        self._readiness = readiness
        self._end = end
        self._changed = changed

    def kill(self, now_ns: int, pod: PodRecord, name: str) -> None:
        """End a running container; the others continue."""
        run = pod.containers.setdefault(name, ContainerRun(changed_ns=pod.running_ns or now_ns))
        if now_ns - run.changed_ns > RESET_NS:
            run.kills = 0
        stops = pod.is_terminating or pod.eviction is not None
        is_sidecar = all(container.name != name for container in pod.message.spec.containers)
        policy = pod.message.spec.restart_policy
        again = not stops and (is_sidecar or runs_again(policy, KILLED_EXIT_CODE))
        wait_ns = _back_off(now_ns, run, again=again)
        write = partial(conditions.oom_killed, name=name, waits=bool(wait_ns))
        self._readiness.stopped(pod)
        if any(map(_may_run, _runs(pod))):
            self._cluster.status_changed(now_ns, pod, write)
            self._plan_restart(pod)
            self._changed(now_ns, pod)
        elif stops:
            self._cluster.status_changed(now_ns, pod, write)
            self._timeline.plan(now_ns, ActionKind.STOPPED, pod.uid)
            self._changed(now_ns, pod)
        else:
            self._end(now_ns, pod, partial(_last_killed, write=write, before=ended_before(pod)))

    def continued(self, now_ns: int, pod: PodRecord) -> None:
        """Plan the restarts of containers that had exited when their running pod was recorded.

        The wait is by how often a container was restarted; one that ran for long enough has none.
        """
        for status in pod.message.status.container_statuses:
            ended = status.state.terminated
            policy = pod.message.spec.restart_policy
            if not (status.state.HasField("terminated") and runs_again(policy, ended.exit_code)):
                continue
            ended_ns = time_ns(ended.finished_at) if ended.HasField("finished_at") else now_ns
            ran_ns = ended_ns - time_ns(ended.started_at) if ended.HasField("started_at") else 0
            kills = 0 if ran_ns > RESET_NS else status.restart_count
            restart_ns = max(now_ns, ended_ns + crash_backoff_ns(kills))
            pod.containers[status.name] = ContainerRun(
                changed_ns=ended_ns, runs=False, restart_ns=restart_ns, kills=kills + 1
            )
        self._plan_restart(pod)

    def restart(self, now_ns: int, pod: PodRecord) -> None:
        """Restart the containers of a running pod whose backoff is over."""
        if pod.is_terminating or pod.eviction is not None:
            return
        due = {
            name: run
            for name, run in pod.containers.items()
            if run.restart_ns is not None and run.restart_ns <= now_ns
        }
        for run in due.values():
            run.restart_ns, run.changed_ns, run.runs = None, now_ns, True
        all_run = all(run.runs for run in pod.containers.values())
        is_ready = self._readiness.restarted(now_ns, pod, all_run=all_run)
        for name in due:
            write = partial(conditions.restarted, name=name, is_ready=is_ready)
            self._cluster.status_changed(now_ns, pod, write)
        self._plan_restart(pod)
        self._changed(now_ns, pod)

    def kill_init(self, now_ns: int, pod: PodRecord, name: str) -> None:
        """End an init container; it is restarted, or its pod fails."""
        run = pod.containers.setdefault(name, ContainerRun(changed_ns=now_ns))
        if run.kills:
            restarted = partial(conditions.init_restarted, name=name)
            self._cluster.status_changed(now_ns, pod, restarted)
        again = runs_again(pod.message.spec.restart_policy, KILLED_EXIT_CODE)
        wait_ns = _back_off(now_ns, run, again=again)
        write = partial(conditions.oom_killed, name=name, waits=bool(wait_ns))
        if again:
            self._cluster.status_changed(now_ns, pod, write)
            self._plan_restart(pod)
        else:
            self._end(now_ns, pod, partial(conditions.init_failed, write=write))

    def _plan_restart(self, pod: PodRecord) -> None:
        """Plan the next restart of a container; it is idle as that of a whole pod is."""
        times = [run.restart_ns for run in pod.containers.values() if run.restart_ns is not None]
        if times:
            idle = not counts_restarts(pod)
            self._timeline.plan(min(times), ActionKind.RESTART, pod.uid, idle=idle)


def _back_off(now_ns: int, run: ContainerRun, *, again: bool) -> int:
    """Note that a container was killed; return the wait for its restart, ns, 0 for no wait."""
    wait_ns = crash_backoff_ns(run.kills) if again else 0
    run.restart_ns = now_ns + wait_ns if again else None
    run.changed_ns, run.runs = now_ns, False
    run.kills += 1
    return wait_ns


def _runs(pod: PodRecord) -> list[ContainerRun | None]:
    """Return the runs of a pod's own containers, None for those that run since the pod does."""
    return [pod.containers.get(container.name) for container in pod.message.spec.containers]


def _may_run(run: ContainerRun | None) -> bool:
    """Return whether a container runs, or will be restarted."""
    return run is None or run.runs or run.restart_ns is not None


def _last_killed(
    now_ns: int, message: pod_pb2.Pod, write: conditions.Write, before: Collection[str]
) -> None:
    """Write that the pod's last container was killed."""
    write(now_ns, message)
    conditions.ended(now_ns, message, exit_code=KILLED_EXIT_CODE, before=before)


def ended_before(pod: PodRecord) -> list[str]:
    """Return the pod's own containers, not sidecars, that were killed and do not run."""
    if not pod.containers:
        return []
    names = {container.name for container in pod.message.spec.containers}
    return [name for name, run in pod.containers.items() if name in names and not run.runs]


def counts_restarts(pod: PodRecord) -> bool:
    """Return whether a controller counts the pod's restarts, which limits them."""
    return any(owner.kind == "Job" for owner in pod.message.metadata.owner_references)


def pod_finish_ns(pod: PodRecord) -> int | None:
    """Return when the last of a running pod's containers exits by itself, None for never.

    None also while a container waits for its restart.
    """
    if not pod.containers:
        return finish_ns(pod.life, pod.running_ns or 0)
    runs = [run for run in _runs(pod) if run is not None]
    if any(run.restart_ns is not None for run in runs):
        return None
    starts = [run.changed_ns for run in runs if run.runs]
    return finish_ns(pod.life, max([pod.running_ns or 0, *starts]))


def finish_ns(life: trace_pb2.PodLife, running_ns: int) -> int | None:
    """Return when the containers of a pod that runs since `running_ns` exit, None for never.

    A recorded run that was cut short (censored) has no end.
    """
    if life.censored or not life.HasField("service_duration_ns"):
        return None
    return running_ns + life.service_duration_ns


def restarts(pod: PodRecord) -> bool:
    """Return whether a pod's containers run again after they have exited."""
    policy, exit_code = pod.message.spec.restart_policy, pod.life.exit_code
    return pod.life.HasField("exit_code") and runs_again(policy, exit_code)


def ending(
    life: trace_pb2.PodLife, write: Callable[..., None] = conditions.ended, **more: Collection[str]
) -> conditions.Write:
    """Return the status write for a pod whose containers exit by themselves."""
    return partial(write, exit_code=life.exit_code or int(life.fails), **more)
