"""The life of a pod: created, seen by its kubelet, running, finished or stopped, removed.

Every step that takes time is planned on the timeline and comes back as an action; every step that
changes the pod goes through the cluster, so that a watch would see it.

Source: kubernetes v1.34 pkg/kubelet (generateAPIPodStatus, getPhase, killPod),
pkg/registry/core/pod/strategy.go (CheckGracefulDelete), apiserver pkg/registry/rest/delete.go
(BeforeDelete); recordings of a real control plane for the order of events.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from replay.world.api import conditions
from replay.world.api.admission.refusal import AdmissionError, RefusedPod
from replay.world.api.conditions import (
    KILLED_EXIT_CODE,
    RESET_NS,
    crash_backoff_ns,
    mark_disrupted,
    set_pod_condition,
)
from replay.world.api.pod_record import PodRecord, new_pod
from replay.world.controller import Controller, Ending
from replay.world.kubelet import critical_pods
from replay.world.kubelet.admission import KubeletAdmission, Rejection
from replay.world.kubelet.annotations import annotate_life, annotated_usage
from replay.world.kubelet.container_ends import (
    ContainerKills,
    counts_restarts,
    ended_before,
    ending,
    pod_finish_ns,
    restarts,
)
from replay.world.kubelet.failing_containers import failing_reason
from replay.world.kubelet.images import ImagePulls
from replay.world.kubelet.readiness import Readiness
from replay.world.kubelet.silence import SilentKubelets
from replay.world.state import WorldState
from replay.world.timeline import BEFORE_END_KINDS, POD_KINDS, Action, ActionKind
from reprieve.eviction.v1beta1 import eviction_pb2
from reprieve.kube.v1beta1 import pod_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2
from reprieve.trace.v1beta1 import trace_pb2
from services.kube.pod import PodPhase
from services.kube.time import SECOND_NS
from services.rpc.errors import FieldError
from services.rpc.kube import fields
from services.rpc.kube.fields import time_ns
from services.rpc.kube.spec import PodSpecInterner

_RUNS_TO_COMPLETION = frozenset({"OnFailure", "Never"})
_NAMED = 3
"""Pods that a note names."""
_ENDLESS = (
    "pods that run to completion have no end: nothing says how long {} run, so that they keep "
    "their resources and their Jobs do not finish; --model service-time=10m, or an annotation, "
    "sets it"
)


class AdmittedPod(NamedTuple):
    """A pod that admission has accepted, the event that adds it, and a note ("" if none)."""

    pod: PodRecord
    event: scheduler_pb2.Event
    note: str


class PodLifecycle(Controller):
    """Drives every pod of a cluster through its life.

    `usage_changed` is called with a pod whose containers start or end, `under_pressure` returns why
    a pod is rejected by a kubelet whose node is under pressure (None: it is not). Of a pod that its
    kubelet does not admit at once, `not_admitted` is called before anything is done about it;
    `rejected` with one that it rejects, `admitted_on_node` with one that it admits.
    `resized` is called with a pod on a node whose resources a user has changed, and its former
    spec, `resources_changed` when its kubelet has allocated them, `taken_up` with a pod that runs
    when it is created.
    `memory_reached` is called when a pod's memory may exceed a limit; `init_container_over` returns
    the init container that is killed at its start ("": none).
    """

    actions = frozenset(POD_KINDS) - {ActionKind.TAINT, ActionKind.DEVICE_TAINT}

    def __init__(self, state: WorldState) -> None:
        super().__init__(state)
        self.silent = SilentKubelets(state)
        self._specs = PodSpecInterner()
        self.readiness = Readiness(state)
        self.kills = ContainerKills(
            state, self.readiness, end=self._end, changed=self._containers_changed
        )
        self.images = ImagePulls(state.cluster, state.models.image_pull_ns)
        self.usage_changed: Callable[[int, PodRecord], None] = lambda _now_ns, _pod: None
        self.kubelet_admission = KubeletAdmission(state.cluster, self._specs)
        self.under_pressure: Callable[[PodRecord], Rejection | None] = lambda _pod: None
        self.not_admitted: Callable[[PodRecord], None] = lambda _pod: None
        self.rejected: Callable[[int, PodRecord], None] = lambda _now_ns, _pod: None
        self.admitted_on_node: Callable[[PodRecord], None] = lambda _pod: None
        self.resized: Callable[[int, PodRecord, pod_pb2.PodSpec], None] = lambda *_: None
        self.resources_changed: Callable[[PodRecord], None] = lambda _pod: None
        self.taken_up: Callable[[int, PodRecord], None] = lambda _now_ns, _pod: None
        self.memory_reached: Callable[[int, PodRecord], None] = lambda _now_ns, _pod: None
        self.init_container_over: Callable[[int, PodRecord], str] = lambda _now_ns, _pod: ""

    def check(self, message: pod_pb2.Pod) -> None:
        """Refuse a pod that no service could decode. Raises FieldError, naming the field."""
        self._specs.spec(message.spec, field="spec")
        if message.status.phase:
            fields.choice(PodPhase, message.status.phase, "status.phase")
        fields.conditions(message.status.conditions)

    def create(
        self,
        now_ns: int,
        message: pod_pb2.Pod,
        life: trace_pb2.PodLife,
        *,
        recorded: bool = False,
        admitted: AdmittedPod | None = None,
    ) -> RefusedPod | None:
        """Admit and store a pod; return why it is refused, None if it is stored.

        recorded: a controller creates it as in the recording, where it was not refused. admitted:
        the pod as already admitted.
        """
        if self.is_taken(message):
            return RefusedPod(f"pod {_name(message)} exists already", by_admission=False)
        try:
            admitted = admitted or self.admitted(now_ns, message, life, recorded=recorded)
            self.store(now_ns, admitted)
        except (AdmissionError, FieldError) as error:
            return RefusedPod.of(message.metadata.name, error)
        return None

    def is_taken(self, message: pod_pb2.Pod) -> bool:
        """Return whether a pod of that name or UID exists."""
        return (
            _name(message) in self._cluster.pod_uids or message.metadata.uid in self._cluster.pods
        )

    def admitted(
        self, now_ns: int, message: pod_pb2.Pod, life: trace_pb2.PodLife, *, recorded: bool = False
    ) -> AdmittedPod:
        """Admit a pod without storing it, and return it.

        The message and its life are filled in. Raises AdmissionError and FieldError.
        """
        self.check(message)
        self._fill_in(message, life)
        note = self._admission.admit(now_ns, message, recorded=recorded)
        return AdmittedPod(*new_pod(now_ns, message, life), note)

    def store(self, now_ns: int, admitted: AdmittedPod) -> None:
        """Store a pod whose name and UID are free."""
        if admitted.note:
            self._journal.note("priority", admitted.note)
        self._admission.quotas.charge(now_ns, admitted.pod.message)
        self._cluster.create_pod(admitted.pod, admitted.event)
        if admitted.pod.node_name:
            self._take_up(now_ns, admitted.pod)

    def _fill_in(self, message: pod_pb2.Pod, life: trace_pb2.PodLife) -> None:
        """Fill in a life from the pod's annotations and the models; the trace takes precedence."""
        annotate_life(message.metadata.annotations, life)
        annotated_usage(message.metadata.annotations)
        wanted_ns = self._models.service_time_ns
        ends = message.spec.restart_policy in _RUNS_TO_COMPLETION
        if wanted_ns is not None and ends and not life.HasField("service_duration_ns"):
            life.service_duration_ns = wanted_ns
            life.exit_code = life.exit_code

    def _take_up(self, now_ns: int, pod: PodRecord) -> None:
        """Continue the life of a pod that is created with a node."""
        status = pod.message.status
        if status.phase == "Running":
            started = status.start_time if status.HasField("start_time") else None
            pod.running_ns = time_ns(started) if started else now_ns
            self.kills.continued(now_ns, pod)
            self._plan_finish(now_ns, pod)
            self.readiness.continued(now_ns, pod, pod.running_ns)
            self.usage_changed(now_ns, pod)
            self.taken_up(now_ns, pod)
        elif not pod.is_terminal and not self._stays(pod):
            self._timeline.plan(now_ns, ActionKind.KUBELET_SEES, pod.uid)
        if pod.is_terminating:
            pod.removal = "deleted"
            meta = pod.message.metadata
            grace_ns = meta.deletion_grace_period_seconds * SECOND_NS
            pod.stopping_ns = time_ns(meta.deletion_timestamp) - grace_ns
            self._plan_stop(now_ns, pod, time_ns(meta.deletion_timestamp))

    def _stays(self, pod: PodRecord) -> bool:
        """Return whether a pod that is created with a node cannot start, nor did when recorded.

        Its phase is Pending while a container waits that has never run.

        Source: kubernetes v1.34 pkg/kubelet/kubelet_pods.go, getPhase.
        """
        has_started = pod.life.HasField("start_delay_duration_ns")
        return not has_started and bool(failing_reason(pod.message.status))

    def bound(self, now_ns: int, pod: PodRecord) -> None:
        """Plan the first sync of a pod that was bound to its node."""
        self._timeline.plan(now_ns, ActionKind.KUBELET_SEES, pod.uid)

    def claims_prepared(self, now_ns: int, pod: PodRecord) -> None:
        """Start a bound pod whose kubelet has waited for its claims for devices."""
        if pod.running_ns is not None or pod.is_terminal or pod.is_terminating:
            return
        steps = (ActionKind.KUBELET_SEES, ActionKind.START, ActionKind.RESTART)
        if all(self._timeline.planned_ns(kind, pod.uid) is None for kind in steps):
            self._timeline.plan(now_ns, ActionKind.KUBELET_SEES, pod.uid)

    def act(self, now_ns: int, action: Action) -> None:
        """Carry out a planned action of a pod, unless the pod has ended at the same instant."""
        kind, pod = action.kind, self._cluster.pods.get(action.key)
        if pod is None or self.silent.holds_back(action, pod):
            return
        if pod.is_terminal and kind in BEFORE_END_KINDS:
            return
        match kind:
            case ActionKind.KUBELET_SEES:
                self._kubelet_sees(now_ns, pod)
            case ActionKind.RESTART if pod.running_ns is not None:
                self.kills.restart(now_ns, pod)
            case ActionKind.START | ActionKind.RESTART:
                self._start(now_ns, pod)
            case ActionKind.READY:
                self.readiness.reached(now_ns, pod)
            case ActionKind.MEMORY:
                self.memory_reached(now_ns, pod)
            case ActionKind.FINISH:
                self._finish(now_ns, pod)
            case ActionKind.STOPPED:
                self._stopped(now_ns, pod)
            case ActionKind.REMOVE:
                self._remove_or_hold(now_ns, pod)

    def delete(self, now_ns: int, pod: PodRecord, grace_s: int | None, cause: str) -> None:
        """Request a pod's deletion; one without a node, or that has ended, is removed at once.

        `grace_s` None is the pod's own grace period, 0 removes the pod at once. A later request
        counts only if its grace period is shorter, which counts from the first request on, and
        never ends in the past. The first `cause` is the one that the log holds.
        """
        pod.removal = pod.removal or cause
        if pod.is_terminating:
            self._shorten(now_ns, pod, grace_s)
            return
        grace_s = pod.grace_s if grace_s is None else grace_s
        if not pod.node_name or pod.is_terminal or grace_s == 0:
            self._remove_or_hold(now_ns, pod)
            return
        grace_s = max(1, grace_s)
        deletion_ns = now_ns + grace_s * SECOND_NS
        self._cluster.deletion_requested(now_ns, pod, deletion_ns=deletion_ns, grace_s=grace_s)
        self._plan_stop(now_ns, pod, deletion_ns)

    def _shorten(self, now_ns: int, pod: PodRecord, grace_s: int | None) -> None:
        """Shorten the grace period of a pod that is terminating.

        The kubelet gives the containers the new period from the time of this request on.
        """
        meta = pod.message.metadata
        if grace_s == 0:
            self._remove_or_hold(now_ns, pod)
            return
        if grace_s is None or grace_s >= meta.deletion_grace_period_seconds:
            return
        grace_s = max(1, grace_s)
        asked_ns = time_ns(meta.deletion_timestamp)
        asked_ns -= meta.deletion_grace_period_seconds * SECOND_NS
        deletion_ns = asked_ns + grace_s * SECOND_NS
        if deletion_ns < now_ns:
            deletion_ns, grace_s = now_ns, 1
        self._cluster.deletion_requested(now_ns, pod, deletion_ns=deletion_ns, grace_s=grace_s)
        self._plan_stop(now_ns, pod, now_ns + grace_s * SECOND_NS)

    def evict(self, now_ns: int, pod: PodRecord, eviction: eviction_pb2.Eviction) -> int:
        """Let the kubelet kill a pod and return when it will have stopped, ns.

        It is Failed from then on; until then it is active on its node.
        """
        pod.eviction = eviction
        grace_ns = pod.grace_s * SECOND_NS
        if eviction.HasField("grace_period_override_duration_ns"):
            grace_ns = eviction.grace_period_override_duration_ns
        return self._plan_stop(now_ns, pod, now_ns + grace_ns)

    def lose(self, now_ns: int, pod: PodRecord) -> None:
        """Remove a pod whose node was deleted (pod garbage collection)."""
        pod.removal = pod.removal or "node-lost"
        if not pod.is_terminal:
            reason, message = "DeletionByPodGC", "PodGC: node no longer exists"
            mark_disrupted(pod.message.status, now_ns, reason, message)
        self.give_up(now_ns, pod)

    def give_up(self, now_ns: int, pod: PodRecord) -> None:
        """Remove a pod that no kubelet will finish; it is Failed (pod garbage collection)."""
        if not pod.is_terminal:
            pod.message.status.phase = "Failed"
            if pod.finalizers:
                self._timeline.cancel_pod(pod.uid)
                self._cluster.status_changed(now_ns, pod)
                self._journal.finished(now_ns, pod)
        self._remove_or_hold(now_ns, pod)

    def finalizers_changed(self, now_ns: int, pod: PodRecord) -> None:
        """Remove a pod that only its finalizers have held, if none is left.

        Source: kubernetes v1.34 apiserver pkg/registry/generic/registry/store.go,
        ShouldDeleteDuringUpdate.
        """
        meta = pod.message.metadata
        confirmed = meta.HasField("deletion_grace_period_seconds")
        if pod.is_terminating and confirmed and not meta.deletion_grace_period_seconds:
            self._remove_or_hold(now_ns, pod)

    def conclude(self, ending: Ending) -> None:
        """Note the pods that run to completion and for which nothing says how long they run."""
        if ending.is_cut:
            return
        keys = [
            pod.key
            for pod in self._cluster.pods.values()
            if pod.message.spec.restart_policy in _RUNS_TO_COMPLETION
            and pod.running_ns is not None
            and not (pod.life.HasField("service_duration_ns") or pod.life.censored)
            and not (pod.is_terminal or pod.is_terminating)
        ]
        if keys:
            more = len(keys) - _NAMED
            named = ", ".join(keys[:_NAMED]) + (f" and {more:,} more" if more > 0 else "")
            self._journal.notes["service-time", _ENDLESS.format(named)] = len(keys)

    # Steps

    def _kubelet_sees(self, now_ns: int, pod: PodRecord) -> None:
        """Write the kubelet's first status; containers that start at once run in it already.

        The containers of a pod whose claims for devices are not reserved for it wait for that.
        """
        if pod.is_terminating:
            return
        is_new = not pod.message.status.HasField("start_time")
        if is_new and not self._admits(now_ns, pod):
            return
        if not self._cluster.device_claims.may_run(pod):
            if is_new:
                self._cluster.status_changed(now_ns, pod, conditions.seen)
            return
        delay_ns = self.start_delay_ns(now_ns, pod)
        if delay_ns <= 0:
            self._start(now_ns, pod, is_first=is_new)
            return
        if is_new:
            self._cluster.status_changed(now_ns, pod, conditions.seen)
        self._timeline.plan(now_ns + delay_ns, ActionKind.START, pod.uid)

    def start_delay_ns(self, now_ns: int, pod: PodRecord) -> int:
        """Return the time from now until a pod's containers run, ns; this begins image pulls."""
        if pod.life.HasField("start_delay_duration_ns"):
            return pod.life.start_delay_duration_ns
        pulled_ns = self.images.ready_ns(now_ns, pod.message)
        return pulled_ns - now_ns + self._models.start_delay_ns

    def _admits(self, now_ns: int, pod: PodRecord) -> bool:
        """Return whether its kubelet admits a pod now; one that it rejects has failed."""
        rejection, unfit = self.under_pressure(pod), None
        if rejection is None:
            unfit = self.kubelet_admission.unfit(pod)
            if unfit is None:
                self.admitted_on_node(pod)
                return True
            rejection = unfit.rejection()
        self.not_admitted(pod)
        if unfit and not unfit.predicates and critical_pods.is_critical(pod.priority):
            victims = self.kubelet_admission.victims(pod, unfit)
            if not isinstance(victims, Rejection):
                self._make_room(now_ns, pod, victims)
                return False
            rejection = victims
        # A kubelet that did not act until now says nothing about the node as it was at the binding.
        if unfit and pod.placed and conditions.bound_since_ns(pod.message) == now_ns:
            pod.placed = False
            self._journal.invalid(now_ns, pod, pod.node_name, [rejection], found_by="kubelet")
        self._reject(now_ns, pod, rejection)
        return False

    def _make_room(self, now_ns: int, pod: PodRecord, victims: list[PodRecord]) -> None:
        """End pods for a critical one; its kubelet looks at it again when they have stopped."""
        stopped_ns = now_ns
        for victim in victims:
            if victim.eviction is None:
                eviction = critical_pods.eviction()
                self._journal.evicted(now_ns, victim, eviction, ())
                self.evict(now_ns, victim, eviction)
            stopped_ns = max(stopped_ns, victim.stop_ns or now_ns)
        self._timeline.plan(stopped_ns, ActionKind.KUBELET_SEES, pod.uid)

    def _reject(self, now_ns: int, pod: PodRecord, rejection: Rejection) -> None:
        """Fail a pod that its kubelet does not admit."""
        self.rejected(now_ns, pod)
        self._journal.rejected(now_ns, pod, rejection.reason, rejection.message)
        self._timeline.cancel_pod(pod.uid)
        conditions.rejected(now_ns, pod.message, rejection.reason, rejection.message)
        self._cluster.status_changed(now_ns, pod)
        self._journal.finished(now_ns, pod)

    def _start(self, now_ns: int, pod: PodRecord, *, is_first: bool = False) -> None:
        if pod.is_terminating or pod.eviction is not None:
            return
        if killed := self.init_container_over(now_ns, pod):
            if is_first:
                self._cluster.status_changed(now_ns, pod, conditions.seen)
            self.kills.kill_init(now_ns, pod, killed)
            return
        pod.containers.clear()
        pod.running_ns = now_ns
        write = self.readiness.started(now_ns, pod, is_first=is_first)
        self._cluster.status_changed(now_ns, pod, write)
        if not any(container.restart_count for container in pod.message.status.container_statuses):
            self._journal.started(now_ns, pod)
        self._plan_finish(now_ns, pod)
        self.usage_changed(now_ns, pod)

    def _containers_changed(self, now_ns: int, pod: PodRecord) -> None:
        """Note that a container has ended or restarted while its pod continues to run."""
        self._plan_finish(now_ns, pod)
        self.usage_changed(now_ns, pod)

    def _plan_finish(self, now_ns: int, pod: PodRecord) -> None:
        end_ns = pod_finish_ns(pod)
        if end_ns is None:
            self._timeline.cancel(ActionKind.FINISH, pod.uid)
        else:
            self._timeline.plan(max(now_ns, end_ns), ActionKind.FINISH, pod.uid)

    def _finish(self, now_ns: int, pod: PodRecord) -> None:
        """End a pod whose containers exit; one that a kubelet is evicting counts as evicted."""
        stops = pod.is_terminating or pod.eviction is not None
        if pod.eviction is not None:
            self._fail_evicted(now_ns, pod, pod.eviction)
        elif restarts(pod) and not stops:
            self._wait_for_restart(now_ns, pod)
        else:
            self._end(now_ns, pod, ending(pod.life, before=ended_before(pod)))
        if pod.is_terminating:
            self._timeline.plan(now_ns, ActionKind.REMOVE, pod.uid)

    def _wait_for_restart(self, now_ns: int, pod: PodRecord) -> None:
        """Plan the restart of exited containers after their backoff.

        The restart is idle, so that containers which crash for ever do not keep a replay running,
        unless the pod is a Job's, which counts restarts.
        """
        if now_ns - (pod.running_ns or 0) > RESET_NS:
            pod.crashes = 0
        wait_ns = crash_backoff_ns(pod.crashes)
        pod.crashes += 1
        pod.running_ns = None
        self.readiness.stopped(pod)
        pod.containers.clear()
        write = ending(pod.life, conditions.waits_for_restart)
        self._cluster.status_changed(now_ns, pod, write)
        idle = not counts_restarts(pod)
        self._timeline.plan(now_ns + wait_ns, ActionKind.RESTART, pod.uid, idle=idle)
        self.usage_changed(now_ns, pod)

    def _plan_stop(self, now_ns: int, pod: PodRecord, kill_ns: int) -> int:
        """Plan the end of a pod's containers, at `kill_ns` at the latest; return when it is, ns.

        Containers that do not run yet end at once. An end that is planned earlier stays.
        """
        if pod.stopping_ns is None:
            pod.stopping_ns = now_ns
        wanted_ns: int | None = self._models.shutdown_ns
        if pod.life.HasField("shutdown_duration_ns"):
            wanted_ns = pod.life.shutdown_duration_ns
        if pod.running_ns is None:
            kill_ns = now_ns
        exit_ns = kill_ns if wanted_ns is None else pod.stopping_ns + wanted_ns
        stop_ns = max(now_ns, min(exit_ns, kill_ns))
        if pod.stop_ns is None or stop_ns < pod.stop_ns:
            pod.stop_ns = stop_ns
            pod.killed = exit_ns >= kill_ns
            self._timeline.plan(stop_ns, ActionKind.STOPPED, pod.uid)
        return pod.stop_ns

    def _stopped(self, now_ns: int, pod: PodRecord) -> None:
        if not pod.is_terminal:
            if pod.eviction is not None:
                self._fail_evicted(now_ns, pod, pod.eviction)
            else:
                exit_code = KILLED_EXIT_CODE if pod.killed else 0
                before = ended_before(pod)
                self._end(
                    now_ns, pod, partial(conditions.ended, exit_code=exit_code, before=before)
                )
        if pod.is_terminating:
            self._timeline.plan(now_ns, ActionKind.REMOVE, pod.uid)

    def _fail_evicted(self, now_ns: int, pod: PodRecord, eviction: eviction_pb2.Eviction) -> None:
        status = pod.message.status
        status.reason, status.message = eviction.reason, eviction.message
        condition = eviction.condition
        if condition.type:
            set_pod_condition(
                status,
                condition.type,
                condition.status,
                now_ns,
                condition.reason,
                condition.message,
            )
        write = partial(
            conditions.ended,
            exit_code=KILLED_EXIT_CODE,
            phase=eviction.phase,
            before=ended_before(pod),
        )
        self._end(now_ns, pod, write)

    def _end(self, now_ns: int, pod: PodRecord, write: conditions.Write) -> None:
        self._timeline.cancel_pod(pod.uid)
        self._cluster.status_changed(now_ns, pod, write)
        self._journal.finished(now_ns, pod)
        self.usage_changed(now_ns, pod)

    def _remove_or_hold(self, now_ns: int, pod: PodRecord) -> None:
        """Remove a pod whose grace period is over, or 0, unless finalizers hold it.

        One that they hold is terminating with a grace period of 0; its kubelet, if it has not done
        so, stops its containers now. Its name stays taken.
        Source: kubernetes v1.34 apiserver pkg/registry/generic/registry/store.go,
        deletionFinalizersForGarbageCollection, updateForGracefulDeletionAndFinalizers.
        """
        held_by = pod.finalizers
        if not held_by:
            self._remove(now_ns, pod)
            return
        meta = pod.message.metadata
        is_held = pod.is_terminating and meta.HasField("deletion_grace_period_seconds")
        if not is_held or meta.deletion_grace_period_seconds:
            deletion_ns = time_ns(meta.deletion_timestamp) if pod.is_terminating else now_ns
            deletion_ns = min(deletion_ns, now_ns)
            self._cluster.deletion_requested(now_ns, pod, deletion_ns=deletion_ns, grace_s=0)
            self._journal.note("finalizers", _held_text(pod.key, held_by))
        if pod.node_name and not pod.is_terminal:
            self._plan_stop(now_ns, pod, now_ns)

    def _remove(self, now_ns: int, pod: PodRecord) -> None:
        self._timeline.cancel_pod(pod.uid)
        self._cluster.remove_pod(now_ns, pod)
        self._journal.removed(now_ns, pod)
        if pod.node_name:
            self.usage_changed(now_ns, pod)


def _held_text(key: str, finalizers: list[str]) -> str:
    return (
        f"pod {key} terminates and is held by {', '.join(finalizers)}: no controller of a replay "
        "removes finalizers, so its name stays taken until the trace has an update without them"
    )


def _name(message: pod_pb2.Pod) -> str:
    return f"{message.metadata.namespace}/{message.metadata.name}"
