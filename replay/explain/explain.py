"""Explains one decision of a run: finds it, replays the run up to it, and collects verdicts."""

from __future__ import annotations

import contextlib
import heapq
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice

from replay.backends.processes import EmbeddedServices
from replay.backends.services import FAST_PATHS
from replay.errors import BackendError, RunError
from replay.explain.devices import PLUGIN, RequestOnNode, device_refusals
from replay.explain.explanation import (
    LaterDecision,
    PodExplanation,
    RefusedNodes,
    RejectionReason,
    decided,
    eviction_of,
    later_decisions,
    place_in_queue,
    preemption_of,
    refused_nodes,
    rejection_of,
    runner_up_of,
    scored_node,
)
from replay.explain.rerun import DIVERGED, Rerun, RerunResult
from replay.explain.scale_ups import scale_ups
from replay.explain.target import ExplainQuery, ExplainTarget, attempt_of, find_target
from replay.results.run.directory import RunDirectory
from replay.results.run.manifest import Manifest
from replay.settings import ReplaySettings
from reprieve.scheduler.v1beta1 import scheduler_pb2
from reprieve.trace.v1beta1 import trace_pb2
from services.rpc.access import PLAIN, ClientTls
from services.rpc.local import local_server


def explain(
    run: RunDirectory,
    query: ExplainQuery,
    *,
    top: int = 5,
    address: str = "",
    tls: ClientTls = PLAIN,
) -> PodExplanation:
    """Return why a pod's attempt had its result, with the first `top` entries of each list.

    The run is replayed to the scheduler at `address`; if it is "", to a new scheduler, provided
    that the run started its own. No other address is used: not the one that the run names, nor an
    extender's. Raises RunError if the run lacks the pod or attempt, if `address` is "" but the run
    used a scheduler at an address, and if the scheduler at `address` cannot be reached or is
    another one; BackendError if the services fail.
    """
    target = find_target(run, query)
    manifest, target, restarted_ns = _of_scheduler(run.manifest(), target)
    target = _with_cost(target, manifest)
    if target.entry is None and (target.eviction or target.rejection) is not None:
        return _created_bound(run, manifest, target, top)
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
        return _explained(run, manifest, target, top, rerun, restarted_ns)


def _of_scheduler(
    manifest: Manifest, target: ExplainTarget
) -> tuple[Manifest, ExplainTarget, int | None]:
    """Return manifest and target as of the scheduler that decided, and when it was restarted.

    Where the next scheduler was started before the target's `until_ns`, the place in the queue is
    that right before. The time is None for the first scheduler.
    """
    settings = ReplaySettings.of(manifest)
    if not settings.restarts:
        return manifest, target, None
    times = [restart.at_ns for restart in settings.restarts]
    moment_ns = target.until_ns if target.entry is None else target.entry.time_ns
    past = [at_ns for at_ns in times if moment_ns is None or at_ns <= moment_ns]
    coming = times[len(past) :]
    if coming and target.until_ns is not None:
        target = replace(target, until_ns=min(target.until_ns, coming[0] - 1))
    if not past:
        return manifest, target, None
    in_force = settings.schedulers[len(past)]
    is_same = in_force.scheduler_address == settings.scheduler_address
    decided_by = manifest.decided_by if is_same else ""
    stored = {name: in_force.stored()[name] for name in ("rules", "seed", "configuration")}
    services = {**manifest.services}
    if in_force.scheduler_address:
        services["scheduler"] = in_force.scheduler_address
    manifest = replace(manifest, **stored, services=services, decided_by=decided_by)
    return manifest, target, past[-1]


def _with_cost(target: ExplainTarget, manifest: Manifest) -> ExplainTarget:
    """Return the target with the time between its decision and its entry in the log.

    A decision is carried out and logged after the cost of a cycle; a binding, which may also wait
    for devices, says how long it took.
    """
    if target.entry is None:
        return target
    observed = target.entry.observed
    cost_ns = observed.scheduled.took_duration_ns
    if not observed.HasField("scheduled"):
        cost_ns = int(manifest.models.get("cycle_cost_ns", 0))
    return replace(target, cost_ns=cost_ns, ahead=0) if cost_ns else target


def _open(manifest: Manifest, address: str, tls: ClientTls) -> Rerun:
    config = ReplaySettings.of(manifest).scheduler
    config.recorded_extenders = True
    return Rerun(address, config, tls)


def _open_again(manifest: Manifest, tls: ClientTls) -> Rerun:
    """Open a session with the scheduler that made the run.

    Raises RunError if no scheduler answers, and if another implementation answers.
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
    if manifest.decided_by and manifest.decided_by != rerun.implementation:
        rerun.close()
        now = rerun.implementation or "a scheduler without a name"
        raise RunError(f"the run was decided by {_made_by(manifest)}; now it is {now}: {choice}")
    return rerun


def _made_by(manifest: Manifest) -> str:
    at = f"at {manifest.scheduler_address}" if manifest.scheduler_address else "that it started"
    return f"the scheduler {at}" + (f" ({manifest.decided_by})" if manifest.decided_by else "")


def _explained(
    run: RunDirectory,
    manifest: Manifest,
    target: ExplainTarget,
    top: int,
    rerun: Rerun,
    restarted_ns: int | None,
) -> PodExplanation:
    checkpoint = None if run.has_extenders else run.checkpoint_before(target.from_ns)
    if checkpoint is not None and restarted_ns is not None and checkpoint.at_ns < restarted_ns:
        checkpoint = None
    try:
        result = rerun.find(run.rounds_with_responses(), target, checkpoint, restarted_ns)
    finally:
        rerun.close()
    _check(target, result.outcome)
    return _explanation(run, manifest, target, result, rerun, top)


def _created_bound(
    run: RunDirectory, manifest: Manifest, target: ExplainTarget, top: int
) -> PodExplanation:
    return PodExplanation(
        run=str(run.path),
        start_ns=target.start_ns,
        pod=target.life.key,
        uid=target.life.uid,
        at_ns=target.life.created_ns,
        decision="came bound",
        node=target.life.node_name,
        eviction=eviction_of(target.eviction, top) if target.eviction is not None else None,
        rejection=_rejection(run, target),
        afterwards=_afterwards(run, manifest, target, top),
    )


def _check(target: ExplainTarget, outcome: scheduler_pb2.Outcome | None) -> None:
    """Raise RunError if the replayed outcome differs from the log."""
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
        if later.sequence > entry.sequence and later.time_ns == entry.time_ns:
            nominated = later.observed.nominated
            if later.observed.HasField("nominated") and not nominated.expected:
                yield nominated
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
    decision, node, message = decided(outcome)
    fitting = [verdict for verdict in evaluation.nodes if not verdict.HasField("refusal")]
    fitting.sort(key=lambda verdict: verdict.node_name != node)
    groups = refused_nodes(evaluation.nodes, top)
    bind = outcome.bind if outcome is not None else scheduler_pb2.Bind()
    return PodExplanation(
        run=str(run.path),
        start_ns=target.start_ns,
        pod=target.life.key,
        uid=target.life.uid,
        at_ns=entry.time_ns if entry is not None else result.at_ns,
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
        weights=dict(sorted(evaluation.weights.items())),  # a message keeps no order of its maps
        filter_order=tuple(evaluation.filter_order),
        skipped_filters=tuple(evaluation.skipped_filters),
        skipped_scores=tuple(evaluation.skipped_scores),
        best=tuple(scored_node(verdict) for verdict in fitting[:top]),
        runner_up=runner_up_of(fitting) if node and decision == "scheduled" else None,
        refused=groups[:top],
        refused_groups=len(groups),
        devices=_devices(run, manifest, target, result, groups, top),
        preemption=(
            preemption_of(evaluation.preemption, top) if evaluation.HasField("preemption") else None
        ),
        waiting=(
            place_in_queue(
                result.waiting, rerun.queue, at_ns=result.at_ns, fits_now=result.fits_now
            )
            if result.waiting is not None
            else None
        ),
        eviction=eviction_of(target.eviction, top) if target.eviction is not None else None,
        rejection=_rejection(run, target),
        afterwards=_afterwards(run, manifest, target, top),
        notes=tuple(_notes(manifest, rerun.implementation, bind, len(evaluation.nodes))),
    )


def _devices(
    run: RunDirectory,
    manifest: Manifest,
    target: ExplainTarget,
    result: RerunResult,
    groups: Iterable[RefusedNodes],
    top: int,
) -> tuple[RequestOnNode, ...]:
    """Return why devices of the first nodes that DynamicResources refused were not taken."""
    names = [name for group in groups if group.plugin == PLUGIN for name in group.nodes]
    at_ns = target.entry.time_ns if target.entry is not None else result.at_ns
    return device_refusals(run, target.life.uid, at_ns, names[:top], manifest.rules, top)


def _rejection(run: RunDirectory, target: ExplainTarget) -> RejectionReason | None:
    """Return why a kubelet rejected the target's pod, and the pod that replaced it."""
    if target.rejection is None:
        return None
    owner, since = target.life.owner, target.rejection.sequence
    replacement = None
    if owner is not None:
        later = (entry for entry in run.decisions() if entry.sequence > since)
        made = (entry for entry in later if entry.observed.HasField("created"))
        of_owner = (entry for entry in made if entry.observed.created.owner.uid == owner.uid)
        replacement = next(of_owner, None)
    return rejection_of(target.rejection, owner, replacement)


def _afterwards(
    run: RunDirectory, manifest: Manifest, target: ExplainTarget, top: int
) -> tuple[LaterDecision, ...]:
    after = target.entry.sequence if target.entry is not None else 0
    decisions = later_decisions(target.life.entries)
    if manifest.configuration.get("autoscaler"):
        scaling = scale_ups(run, target.life.uid)
        decisions = heapq.merge(decisions, scaling, key=lambda decision: decision[0].sequence)
    later = (
        LaterDecision(at_ns=entry.time_ns, what=what)
        for entry, what in decisions
        if entry.sequence > after
    )
    return tuple(islice(later, top))


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
