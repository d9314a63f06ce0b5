"""Readiness: when a pod whose containers run becomes ready.

No probe is carried out. The time from Running to Ready is the pod's own, from the trace or an
annotation, or else the model's; it begins anew with each restart. A pod that runs when the
trace begins and is not ready becomes so when that time since its start is over; where it is over
already, the pod stays as it is.

Source: kubernetes v1.34 pkg/kubelet/status/generate.go, GenerateContainersReadyCondition,
GeneratePodReadyCondition.
"""

from __future__ import annotations

from replay.world.api import conditions
from replay.world.api.pod_record import PodRecord
from replay.world.state import WorldPart
from replay.world.timeline import ActionKind

_RUNNING = {
    (True, True): conditions.seen_running,
    (True, False): conditions.seen_running_unready,
    (False, True): conditions.running,
    (False, False): conditions.running_unready,
}
"""The status of containers that start: whether it is the kubelet's first, and they are ready."""


class Readiness(WorldPart):
    """Makes the pods of a cluster ready at their times."""

    def delay_ns(self, pod: PodRecord) -> int | None:
        """Return the time from Running to Ready, ns; None for a pod that never becomes ready."""
        life = pod.life
        match life.WhichOneof("readiness"):
            case None:
                return self._models.ready_delay_ns
            case "never_ready":
                return None
            case "ready_delay_duration_ns":
                # Traces from before `never_ready` have -1 for it.
                return life.ready_delay_duration_ns if life.ready_delay_duration_ns >= 0 else None

    def started(self, now_ns: int, pod: PodRecord, *, is_first: bool) -> conditions.Write:
        """Return the status write for started containers, and schedule the pod's readiness.

        `is_first`: it is the kubelet's first status of the pod.
        """
        delay_ns = self.delay_ns(pod)
        if delay_ns != 0:
            self._plan(pod, now_ns, delay_ns)
        return _RUNNING[is_first, delay_ns == 0]

    def restarted(self, now_ns: int, pod: PodRecord, *, all_run: bool) -> bool:
        """Return whether restarted containers are ready at once; else schedule their readiness.

        The pod becomes ready only when all of its containers run (`all_run`).
        """
        delay_ns = self.delay_ns(pod)
        if delay_ns != 0 and all_run:
            self._plan(pod, now_ns, delay_ns)
        return delay_ns == 0

    def continued(self, now_ns: int, pod: PodRecord, running_ns: int) -> None:
        """Plan when a pod becomes ready that was running before the replay."""
        delay_ns = self.delay_ns(pod)
        if not pod.is_ready and (delay_ns is None or running_ns + delay_ns > now_ns):
            self._plan(pod, running_ns, delay_ns)

    def reached(self, now_ns: int, pod: PodRecord) -> None:
        """Make a pod ready, as planned."""
        pod.awaits_ready = False
        self._cluster.status_changed(now_ns, pod, conditions.ready)

    def stopped(self, pod: PodRecord) -> None:
        """Note that a pod's containers have exited."""
        pod.awaits_ready = False
        self._timeline.cancel(ActionKind.READY, pod.uid)

    def _plan(self, pod: PodRecord, running_ns: int, delay_ns: int | None) -> None:
        pod.awaits_ready = True
        if delay_ns is not None:
            self._timeline.plan(running_ns + delay_ns, ActionKind.READY, pod.uid)
