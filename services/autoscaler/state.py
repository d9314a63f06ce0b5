"""Converts the state that a session's autoscaler keeps between scans to a message for readers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from reprieve.autoscaler.v1beta1 import autoscaler_pb2 as pb
from reprieve.autoscaler.v1beta1 import autoscaler_service_pb2 as service_pb
from services.autoscaler.codec.messages import call_to_message
from services.autoscaler.core.autoscaler import AutoscalerState
from services.autoscaler.core.objects import ClusterPod
from services.autoscaler.core.scale_down.deletions import Deletion, Stage
from services.autoscaler.session import AutoscalerSession

_STAGES: Mapping[Stage, pb.DeletionStage.ValueType] = {
    Stage.WAITING: pb.DELETION_STAGE_WAITING,
    Stage.EVICTING: pb.DELETION_STAGE_EVICTING,
    Stage.LEAVING: pb.DELETION_STAGE_LEAVING,
    Stage.DELAYED: pb.DELETION_STAGE_DELAYED,
    Stage.QUEUED: pb.DELETION_STAGE_QUEUED,
    Stage.BATCHED: pb.DELETION_STAGE_BATCHED,
}


def state_to_message(session: AutoscalerSession) -> service_pb.GetStateResponse:
    """Return the state; while a step waits for an outcome, as far as the step has changed it."""
    if not session.is_started:
        return service_pb.GetStateResponse()
    kept = session.core.state_between_instants()
    message = service_pb.GetStateResponse(
        time_ns=session.at_ns,
        last_scale_up_time_ns=kept.last_scale_up_ns,
        last_scale_down_time_ns=kept.last_delete_ns,
        last_scale_down_failure_time_ns=kept.last_failure_ns,
        groups=_groups(kept),
        nodes=_nodes(kept),
    )
    if session.call is not None:
        message.call.CopyFrom(call_to_message(session.call))
    return message


def _groups(kept: AutoscalerState) -> Iterator[pb.GroupState]:
    for name in sorted({*kept.groups.requests, *kept.backoff}):
        group = pb.GroupState(group=name)
        request, failed = kept.groups.requests.get(name), kept.backoff.get(name)
        if request is not None:
            group.requested_nodes = request.increase
            group.requested_time_ns, group.expected_time_ns = request.time_ns, request.expected_ns
        if failed is not None:
            group.backoff_until_time_ns, group.backoff_code = failed.until_ns, failed.error_code
        yield group


def _nodes(kept: AutoscalerState) -> Iterator[pb.NodeState]:
    unneeded, until_ns = kept.unneeded, kept.recently_unremovable
    running = kept.deletions.running
    for name in sorted({*unneeded, *until_ns, *running}):
        node = pb.NodeState(node_name=name, unremovable_until_time_ns=until_ns.get(name))
        if name in unneeded:
            node.unneeded_since_time_ns = unneeded[name].since_ns
        if name in running:
            _put_deletion(node, running[name])
        yield node


def _put_deletion(node: pb.NodeState, deletion: Deletion) -> None:
    node.deletion = _STAGES[deletion.stage]
    if deletion.due_ns is not None:
        node.deletion_due_time_ns = deletion.due_ns
    node.pods_to_evict.extend(_keys(deletion.to_evict))
    node.evicted_pods.extend(_keys(deletion.evicted))


def _keys(pods: Iterable[ClusterPod]) -> Iterator[str]:
    return (pod.key for pod in pods)
