"""The trace of a Google cluster, from its events in order of time.

A task is one pod from its first SUBMIT to its end, including evictions and failures after which it
was submitted again; its service time is the sum of its runs. SCHEDULE and EVICT become observations
and are never inputs. The record of a task is made at the end of the task and then sorted by time.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from replay.importers.datacenter import borg_events as borg
from replay.importers.datacenter.borg_pods import (
    MachineNodes,
    Task,
    add_usage,
    class_name,
    node_name,
    task_pod,
    usage_profile,
)
from replay.importers.records import ImportOptions, Issues, new_header
from replay.importers.rows import RecordDrafts, RecordRank
from reprieve.kube.v1beta1.object_pb2 import KubernetesObject
from reprieve.trace.v1beta1 import trace_pb2

_US_NS = 1000
_RESUBMITTED_WITHIN_US = 3600 * 1_000_000
_NEAR_US = 5_000_000
_MachineTask = tuple[int, str, Task]
"""Time (us), machine and task of an event."""


def borg_trace(
    name: str,
    paths: Sequence[Path],
    events: Iterable[borg.BorgEvent],
    issues: Issues,
    options: ImportOptions,
) -> Iterator[trace_pb2.Record]:
    """Yield the trace of events, which are in order of time. Raises what `events` raises.

    Memory is bounded by machines and by the tasks that are alive at one time.
    """
    header = new_header(name, paths, options)
    header.times_recorded = True
    header.cpu_milli_per_unit = options.unit_cpu_milli
    header.memory_bytes_per_unit = options.unit_memory_bytes
    with RecordDrafts() as drafts:
        trace = _Trace(drafts, issues, options)
        for event in events:
            trace.add(event)
        trace.end()
        header.window_end_time_ns = trace.now_us * _US_NS
        classes = {class_name(priority): priority for priority in sorted(trace.priorities)}
        yield from drafts.trace(header, classes, issues)


class _Trace:
    def __init__(self, drafts: RecordDrafts, issues: Issues, options: ImportOptions) -> None:
        self.now_us = 0
        self.priorities: set[int] = set()
        self._drafts = drafts
        self._issues = issues
        self._options = options
        self._machines = MachineNodes(options, issues)
        self._evictions = EvictionCauses(self._machines.removed_us)
        self._alive: dict[borg.InstanceKey, Task] = {}
        self._dead: OrderedDict[borg.InstanceKey, Task] = OrderedDict()
        self._constraints: dict[borg.InstanceKey, list[borg.Constraint]] = {}
        self._limits: dict[int, borg.CollectionEvent] = {}
        self._profiles = 0
        self._tasks = 0

    def add(self, event: borg.BorgEvent) -> None:
        """Add the next event."""
        if event.at_us >= borg.AFTER_US:
            self._issues.add("after-window", event.where, "after the window: left out")
            return
        if event.at_us > self.now_us:
            self._advance(event.at_us)
        match event:
            case borg.TaskEvent():
                self._task(event)
            case borg.MachineEvent():
                self._add(self._machines.change(event), RecordRank.NODE)
            case borg.MachineAttributeEvent():
                self._add(self._machines.attribute(event), RecordRank.NODE)
            case borg.TaskConstraintEvent():
                self._constraints.setdefault(event.key, []).append(event.constraint)
            case borg.CollectionEvent():
                self._limit(event)
            case borg.TaskUsageEvent():
                self._use(event)

    def end(self) -> None:
        """Write the tasks that were alive at the end."""
        self._write_evictions(borg.AFTER_US)
        for task in [*self._alive.values(), *self._dead.values()]:
            self._close_at_end(task)

    def _advance(self, at_us: int) -> None:
        self._write_evictions(at_us)
        self._constraints.clear()
        self.now_us = at_us
        while self._dead:
            key, task = next(iter(self._dead.items()))
            if at_us - (task.dead_us or 0) <= _RESUBMITTED_WITHIN_US:
                return
            del self._dead[key]
            self._close_at_end(task)

    def _task(self, event: borg.TaskEvent) -> None:
        if event.in_alloc:
            message = "tasks within a reservation are left out: the reservation holds the room"
            self._issues.add("in-alloc", event.where, message)
            return
        if event.has_missing_info:
            message = "an event that the trace's makers put in for a missing one: taken"
            self._issues.add("missing-info", event.where, message)
        if event.change is borg.TaskChange.SUBMIT:
            self._submit(event)
            return
        task = self._alive.get(event.key)
        if task is None and event.change is borg.TaskChange.SCHEDULE:
            message = "scheduled and never submitted: taken as submitted then"
            self._issues.add("no-submit", event.where, message)
            task = self._submit(event)
        if task is None and event.key in self._dead:
            task = self._dead.pop(event.key)
        if task is None:
            message = f"{event.change.value} of a task that was never submitted, or has ended"
            self._issues.add("unknown-task", event.where, message)
            return
        self._change(task, event)

    def _submit(self, event: borg.TaskEvent) -> Task:
        task = self._alive.get(event.key)
        if task is not None:
            self._issues.add("duplicate-submit", event.where, "submitted, and was alive: left out")
            return task
        task = self._dead.pop(event.key, None)
        if task is None:
            self._tasks += 1
            task = Task(submit=event, number=self._tasks)
            task.constraints += event.constraints
            task.constraints += self._constraints.get(event.key, ())
            limit = self._limits.get(event.key[0])
            task.different_machines = event.different_machines or (
                limit is not None and limit.per_machine == 1
            )
            self.priorities.add(event.priority)
            if event.cpu is None and event.memory is None:
                self._issues.add("no-request", event.where, "a task without requests")
        task.dead_us, task.failed = None, False
        self._alive[event.key] = task
        return task

    def _limit(self, event: borg.CollectionEvent) -> None:
        if event.ended:
            self._limits.pop(event.collection, None)
            return
        if event.per_machine > 1 or event.per_switch:
            message = "a limit of tasks on a machine (above one) or on a switch is not kept"
            if event.collection not in self._limits:
                self._issues.add("not-simulated", event.where, message)
        if event.per_machine or event.per_switch:
            self._limits[event.collection] = event

    def _change(self, task: Task, event: borg.TaskEvent) -> None:
        match event.change:
            case borg.TaskChange.QUEUE:
                task.queued = task.queued or task.enabled_us is None
            case borg.TaskChange.ENABLE:
                task.enabled_us = event.at_us if task.enabled_us is None else task.enabled_us
            case borg.TaskChange.SCHEDULE:
                self._schedule(task, event)
            case borg.TaskChange.UPDATE:
                message = "a task's requests were changed: they stay as submitted"
                self._issues.add("not-simulated", event.where, message)
            case borg.TaskChange.EVICT | borg.TaskChange.FAIL:
                self._stop(task, event)
            case _:
                self._finish(task, event)

    def _schedule(self, task: Task, event: borg.TaskEvent) -> None:
        self._alive[task.submit.key] = task
        task.dead_us, task.running_us, task.machine = None, event.at_us, event.machine
        if event.at_us == 0 == task.submit.at_us and self._machines.has(event.machine):
            task.first_machine = event.machine
            return
        scheduled = trace_pb2.Scheduled(node_name=node_name(event.machine))
        self._observe(task, event, scheduled=scheduled)
        self._evictions.scheduled(task, event.at_us)

    def _stop(self, task: Task, event: borg.TaskEvent) -> None:
        """End a run; the task may be submitted again."""
        task.stop(event.at_us)
        task.dead_us, task.failed = event.at_us, event.change is borg.TaskChange.FAIL
        self._alive.pop(task.submit.key, None)
        self._dead[task.submit.key] = task
        if task.failed:
            finished = trace_pb2.Finished(phase="Failed", reason="FAIL")
            self._observe(task, event, finished=finished)
        else:
            self._evictions.evicted(task, event.machine or task.machine, event.at_us)

    def _finish(self, task: Task, event: borg.TaskEvent) -> None:
        task.stop(event.at_us)
        self._alive.pop(task.submit.key, None)
        life = trace_pb2.PodLife(service_duration_ns=task.ran_us * _US_NS)
        if event.change is borg.TaskChange.KILL:
            life.censored = True
            delete = trace_pb2.Delete(object=task.ref(), cause="user")
            self._drafts.add(
                trace_pb2.Record(time_ns=event.at_us * _US_NS, delete=delete), RecordRank.DELETE
            )
        elif event.change is borg.TaskChange.LOST:
            self._issues.add("lost", event.where, "the end of a task was lost: taken as its end")
        else:
            self._observe(task, event, finished=trace_pb2.Finished(phase="Succeeded"))
        self._write(task, life)

    def _close_at_end(self, task: Task) -> None:
        """Write a task without a recorded end, or that was not submitted again."""
        task.stop(self.now_us)
        life = trace_pb2.PodLife(service_duration_ns=task.ran_us * _US_NS, fails=task.failed)
        life.censored = not task.failed
        if life.censored:
            message = "no end within the trace: runs until it is deleted"
            self._issues.add("censored", task.submit.where, message)
        self._write(task, life)

    def _write(self, task: Task, life: trace_pb2.PodLife) -> None:
        at_ns = task.submit.at_us * _US_NS
        if task.usage:
            self._profiles += 1
            life.usage_id = self._profiles
            profile = usage_profile(self._profiles, task.usage, self._options)
            self._drafts.add(trace_pb2.Record(time_ns=at_ns, usage=profile), RecordRank.USAGE)
        pod = task_pod(task, self._options)
        create = trace_pb2.Record(time_ns=at_ns, pod_create=trace_pb2.PodCreate(pod=pod, life=life))
        self._drafts.add(create, RecordRank.POD, task.number)
        if task.queued and task.enabled_us is not None:
            del pod.spec.scheduling_gates[:]
            update = trace_pb2.Record(
                time_ns=task.enabled_us * _US_NS, update=KubernetesObject(pod=pod)
            )
            self._drafts.add(update, RecordRank.UPDATE)

    def _use(self, event: borg.TaskUsageEvent) -> None:
        task = self._alive.get(event.key)
        if task is None or task.running_us is None:
            message = "usage of a task that does not run: left out"
            self._issues.add("unknown-task", event.where, message)
        elif add_usage(task, event):
            message = "usage of a long run: neighbouring windows are put together, the larger kept"
            self._issues.add("merged-usage", event.where, message)

    def _observe(self, task: Task, event: borg.TaskEvent, **content: object) -> None:
        observed = trace_pb2.Observed(object=task.ref(), **content)  # type: ignore[arg-type]  # one of its oneof
        self._drafts.add(
            trace_pb2.Record(time_ns=event.at_us * _US_NS, observed=observed), RecordRank.OBSERVED
        )

    def _write_evictions(self, until_us: int) -> None:
        self._add(self._evictions.observations(until_us), RecordRank.OBSERVED)

    def _add(self, records: Iterable[trace_pb2.Record], rank: RecordRank) -> None:
        for record in records:
            self._drafts.add(record, rank)


class EvictionCauses:
    """Infers why tasks were evicted, which the traces do not contain.

    The cause is the loss of the machine where it was removed within five seconds; a preemption
    where a task of higher priority was scheduled on the machine at the same time; else unknown:
    overcommitment or a disk error.
    """

    def __init__(self, removed_us: Mapping[str, int]) -> None:
        self._removed_us = removed_us
        self._evicted: deque[_MachineTask] = deque()
        self._scheduled: deque[_MachineTask] = deque()

    def scheduled(self, task: Task, at_us: int) -> None:
        """Add a scheduled task, which may be a preemptor."""
        self._scheduled.append((at_us, task.machine, task))

    def evicted(self, task: Task, machine: str, at_us: int) -> None:
        """Add an eviction."""
        self._evicted.append((at_us, machine, task))

    def observations(self, now_us: int) -> Iterator[trace_pb2.Record]:
        """Yield the evictions more than five seconds before `now_us`, with their causes."""
        while self._evicted and self._evicted[0][0] + _NEAR_US < now_us:
            at_us, machine, task = victim = self._evicted.popleft()
            observed = trace_pb2.Observed(object=task.ref())
            by, removed_us = self._preemptor(victim), self._removed_us.get(machine)
            name = node_name(machine)
            if removed_us is not None and abs(removed_us - at_us) <= _NEAR_US:
                observed.removed.cause = "node-lost"
            elif by is not None:
                observed.preempted.CopyFrom(trace_pb2.Preempted(by=by.ref(), node_name=name))
            else:
                observed.evicted.CopyFrom(trace_pb2.Evicted(node_name=name, message="EVICT"))
            yield trace_pb2.Record(time_ns=at_us * _US_NS, observed=observed)
        oldest_us = self._evicted[0][0] if self._evicted else now_us
        while self._scheduled and self._scheduled[0][0] < oldest_us:
            self._scheduled.popleft()

    def _preemptor(self, victim: _MachineTask) -> Task | None:
        *place, evicted = victim
        for *other_place, task in self._scheduled:
            if place == other_place and task.submit.priority > evicted.submit.priority:
                return task
        return None
