"""Explains one decision of a run: finds it, replays the run up to it, collects the verdicts."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace

from replay.backends.processes import EmbeddedServices
from replay.backends.services import FAST_PATHS
from replay.errors import BackendError, RunError
from replay.explain.explanation import (
    LaterDecision,
    PluginScore,
    PodExplanation,
    QueuePlace,
    RunnerUp,
    ScoredNode,
    eviction_of,
    preemption_of,
    refused_nodes,
)
from replay.explain.rerun import DIVERGED, Rerun, RerunResult, config_of
from replay.explain.target import ExplainQuery, ExplainTarget, attempt_of, find_target
from replay.results.run.directory import RunDirectory
from replay.results.run.manifest import Manifest
from reprieve.queue.v1beta1 import queue_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2
from reprieve.trace.v1beta1 import trace_pb2
from services.framework.plugins.events import moving_events
from services.rpc.access import PLAIN, ClientTls
from services.rpc.local import local_server

_SUB_QUEUES = {
    queue_pb2.SUB_QUEUE_ACTIVE: "activeQ",
    queue_pb2.SUB_QUEUE_BACKOFF: "backoffQ",
    queue_pb2.SUB_QUEUE_ERROR_BACKOFF: "backoffQ of errors",
    queue_pb2.SUB_QUEUE_UNSCHEDULABLE: "unschedulable pods",
    queue_pb2.SUB_QUEUE_GATED: "gated pods",
    queue_pb2.SUB_QUEUE_IN_FLIGHT: "in flight",
}


def explain(
    run: RunDirectory,
    query: ExplainQuery,
    *,
    top: int = 5,
    address: str = "",
    tls: ClientTls = PLAIN,
) -> PodExplanation:
    """Return why a pod's attempt had its result, with the best `top` of each list.

    The run is replayed to the scheduler at `address`; "": a new one, where the run started its own.
    No other address is connected to, neither one that the run names nor an extender. Raises
    RunError for what the run does not hold, where a scheduler at an address made it and `address`
    is "", and where that scheduler cannot be reached; BackendError where the services fail.
    """
    manifest = run.manifest()
    target = _with_cost(find_target(run, query), manifest)
    if target.entry is None and target.eviction is not None:
        return _created_bound(run, target, target.eviction, top)
    with contextlib.ExitStack() as stack:
        named = manifest.scheduler_address
        if named and (address == named or (not address and local_server(named))):
            rerun = _open_again(manifest, tls)
        elif address:
            rerun = _open(manifest, address, tls)
        elif named:
            raise RunError(
                f"{run.path} was decided by {_made_by(manifest)}, and no address that a run names "
                "is connected to without --scheduler: to explain it there, add `--scheduler "
                f"{named}` to `reprieve explain`"
            )
        else:
            embedded = stack.enter_context(EmbeddedServices(eviction=False, in_process=True))
            rerun = _open(manifest, embedded.addresses["scheduler"], PLAIN)
        return _explained(run, manifest, target, top, rerun)


def _with_cost(target: ExplainTarget, manifest: Manifest) -> ExplainTarget:
    """Return the target with the time between its decision and its entry in the log.

    A decision is carried out, and logged, a cycle's cost later; a binding also a binding's cost.
    """
    cycle_ns = int(manifest.models.get("cycle_cost_ns", 0))
    bind_ns = int(manifest.models.get("bind_cost_ns", 0))
    if target.entry is None or not (cycle_ns or bind_ns):
        return target
    binds = target.entry.observed.HasField("scheduled")
    return replace(target, cost_ns=cycle_ns + (bind_ns if binds else 0), ahead=0)


def _open(manifest: Manifest, address: str, tls: ClientTls) -> Rerun:
    config = config_of(manifest)
    config.recorded_extenders = True
    return Rerun(address, config, tls)


def _open_again(manifest: Manifest, tls: ClientTls) -> Rerun:
    """Open a session with the scheduler that made the run.

    Raises RunError where it does not answer, and where another one does.
    """
    address = manifest.scheduler_address
    choice = "start it there again, or name another with --scheduler HOST:PORT"
    try:
        rerun = _open(manifest, address, tls)
    except BackendError as error:
        raise RunError(
            f"the run was decided by {_made_by(manifest)}, which does not answer: "
            f"{choice} ({error})"
        ) from error
    if manifest.decided_by != rerun.implementation:
        rerun.close()
        now = rerun.implementation or "a scheduler without a name"
        raise RunError(f"the run was decided by {_made_by(manifest)}; now it is {now}: {choice}")
    return rerun


def _made_by(manifest: Manifest) -> str:
    at = f"at {manifest.scheduler_address}" if manifest.scheduler_address else "that it started"
    return f"the scheduler {at}" + (f" ({manifest.decided_by})" if manifest.decided_by else "")


def _explained(
    run: RunDirectory, manifest: Manifest, target: ExplainTarget, top: int, rerun: Rerun
) -> PodExplanation:
    checkpoint = None if run.has_extenders else run.checkpoint_before(target.from_ns)
    try:
        result = rerun.find(run.rounds_with_responses(), target, checkpoint)
    finally:
        rerun.close()
    _check(target, result.outcome)
    return _explanation(run, manifest, target, result, rerun, top)


def _created_bound(
    run: RunDirectory, target: ExplainTarget, evicted: trace_pb2.Decision, top: int
) -> PodExplanation:
    return PodExplanation(
        run=str(run.path),
        start_ns=target.start_ns,
        pod=target.life.key,
        uid=target.life.uid,
        at_ns=target.life.created_ns,
        decision="came bound",
        node=target.life.node_name,
        eviction=eviction_of(evicted, top),
        afterwards=tuple(_afterwards(target))[:top],
    )


def _check(target: ExplainTarget, outcome: scheduler_pb2.Outcome | None) -> None:
    """Raise RunError where the replayed outcome differs from the log."""
    entry = target.entry
    if entry is None or outcome is None:
        return
    observed = entry.observed
    if observed.HasField("scheduled"):
        same = outcome.bind.node_name == observed.scheduled.node_name
    else:
        message = outcome.unschedulable.message or outcome.failure.message
        same = message == observed.failed_scheduling.message
    logged = next(_nominations(target, entry), trace_pb2.Nominated())
    preemption = outcome.unschedulable.preemption
    same &= logged.node_name == preemption.node_name
    same &= [victim.uid for victim in logged.victims] == [
        victim.pod.uid for victim in preemption.victims
    ]
    if not same or outcome.attempts != target.attempt:
        raise RunError(DIVERGED)


def _nominations(target: ExplainTarget, entry: trace_pb2.Decision) -> Iterator[trace_pb2.Nominated]:
    for later in target.life.entries:
        if later.sequence > entry.sequence and later.at_ns == entry.at_ns:
            if later.observed.HasField("nominated"):
                yield later.observed.nominated
            elif attempt_of(later):
                return


def _explanation(
    run: RunDirectory,
    manifest: Manifest,
    target: ExplainTarget,
    result: RerunResult,
    rerun: Rerun,
    top: int,
) -> PodExplanation:
    evaluation, outcome, entry = result.evaluation, result.outcome, target.entry
    decision, node, message = _decided(outcome)
    fitting = [verdict for verdict in evaluation.nodes if not verdict.HasField("refusal")]
    fitting.sort(key=lambda verdict: verdict.node_name != node)
    groups = refused_nodes(
        (
            (verdict.node_name, verdict.refusal)
            for verdict in evaluation.nodes
            if verdict.HasField("refusal")
        ),
        top,
    )
    bind = outcome.bind if outcome is not None else scheduler_pb2.Bind()
    return PodExplanation(
        run=str(run.path),
        start_ns=target.start_ns,
        pod=target.life.key,
        uid=target.life.uid,
        at_ns=entry.at_ns if entry is not None else result.at_ns,
        attempt=target.attempt,
        attempts=len(target.life.attempts),
        decision=decision,
        node=node,
        message=message or evaluation.fit_error,
        refused_binding=entry.refused if entry is not None else "",
        gates=() if entry is not None else target.life.gates_at(result.at_ns),
        profile=evaluation.profile,
        nodes=len(evaluation.nodes),
        feasible_nodes=evaluation.feasible_nodes,
        evaluated_nodes=bind.evaluated_nodes,
        tied_nodes=bind.tied_nodes,
        fast_path=FAST_PATHS[evaluation.fast_path],
        weights=dict(evaluation.weights),
        filter_order=tuple(evaluation.filter_order),
        skipped_filters=tuple(sorted(evaluation.skipped_filters)),
        skipped_scores=tuple(sorted(evaluation.skipped_scores)),
        best=tuple(_node(verdict) for verdict in fitting[:top]),
        runner_up=_runner_up(fitting) if node and decision == "scheduled" else None,
        refused=groups[:top],
        refused_groups=len(groups),
        preemption=(
            preemption_of(evaluation.preemption, top) if evaluation.HasField("preemption") else None
        ),
        waiting=_waiting(result, rerun.queue),
        eviction=eviction_of(target.eviction, top) if target.eviction is not None else None,
        afterwards=tuple(_afterwards(target))[:top],
        notes=tuple(_notes(manifest, rerun.implementation, bind, len(evaluation.nodes))),
    )


def _decided(outcome: scheduler_pb2.Outcome | None) -> tuple[str, str, str]:
    """Return the decision, the node, and kube-scheduler's message."""
    if outcome is None:
        return "not tried", "", ""
    match outcome.WhichOneof("outcome"):
        case "bind":
            return "scheduled", outcome.bind.node_name, ""
        case "unschedulable":
            verdict = outcome.unschedulable
            if verdict.HasField("preemption"):
                return "nominated", verdict.preemption.node_name, verdict.message
            return "unschedulable", "", verdict.message
    return "failed", "", outcome.failure.message


def _node(verdict: scheduler_pb2.NodeVerdict) -> ScoredNode:
    return ScoredNode(
        name=verdict.node_name,
        total=verdict.total,
        scores={
            score.plugin: PluginScore(
                raw=score.raw, normalized=score.normalized, weighted=score.weighted
            )
            for score in verdict.scores
        },
    )


def _runner_up(fitting: Sequence[scheduler_pb2.NodeVerdict]) -> RunnerUp | None:
    """Return the best node after the chosen one, which is first; None without scores."""
    if len(fitting) < 2 or not fitting[0].scores:
        return None
    taken, second = _node(fitting[0]), _node(fitting[1])
    lost = {
        plugin: score.weighted - second.scores[plugin].weighted
        for plugin, score in taken.scores.items()
        if plugin in second.scores
    }
    return RunnerUp(
        name=second.name,
        total=second.total,
        lost_by=taken.total - second.total,
        lost_by_plugin={plugin: points for plugin, points in lost.items() if points},
    )


def _waiting(result: RerunResult, queue: queue_pb2.QueueConfig) -> QueuePlace | None:
    entry = result.waiting
    if entry is None:
        return None
    unschedulable = entry.sub_queue == queue_pb2.SUB_QUEUE_UNSCHEDULABLE
    plugins = tuple(dict.fromkeys([*entry.unschedulable_plugins, *entry.pending_plugins]))
    return QueuePlace(
        at_ns=result.at_ns,
        sub_queue=_SUB_QUEUES.get(entry.sub_queue, "unknown"),
        since_ns=entry.queued_ns,
        attempts=entry.attempts,
        until_ns=entry.backoff_until_ns or None,
        leftover_ns=entry.queued_ns + queue.max_unschedulable_ns if unschedulable else None,
        plugins=plugins,
        events=moving_events(queue.rules, plugins) if unschedulable else {},
        gates=tuple(entry.gates),
        fits_now=result.fits_now,
    )


def _afterwards(target: ExplainTarget) -> Iterator[LaterDecision]:
    after = target.entry.sequence if target.entry is not None else 0
    for entry in target.life.entries:
        what = _later(entry.observed) if entry.sequence > after else ""
        if what:
            yield LaterDecision(at_ns=entry.at_ns, what=what)


def _later(observed: trace_pb2.Observed) -> str:
    match observed.WhichOneof("observed"):
        case "preempted":
            by = observed.preempted.by
            return f"preempted by {by.namespace}/{by.name} on {observed.preempted.node_name}"
        case "evicted":
            return f"evicted on {observed.evicted.node_name}: {observed.evicted.message}".strip()
        case "oom_killed":
            killed = observed.oom_killed
            return f"container {killed.container} OOM-killed at the limit of {killed.limit_of}"
        case "nominated" if not observed.nominated.node_name:
            return "its nomination was cleared"
        case "started":
            return f"started on {observed.started.node_name}"
        case "finished":
            return f"ended: {observed.finished.phase}"
        case "removed":
            return f"removed: {observed.removed.cause}"
    return ""


def _notes(
    manifest: Manifest, implementation: str, bind: scheduler_pb2.Bind, nodes: int
) -> Iterator[str]:
    if manifest.decided_by != implementation:
        now = implementation or "a scheduler without a name"
        yield f"the run was decided by {_made_by(manifest)} and replayed to {now}"
    if 0 < bind.evaluated_nodes < nodes and bind.feasible_nodes > 1:
        yield (
            f"the attempt evaluated {bind.evaluated_nodes:,} of {nodes:,} nodes; "
            "here all of them are evaluated"
        )
