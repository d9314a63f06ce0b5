"""The plugin arguments that the queue's hints go by, as its messages."""

from __future__ import annotations

from collections.abc import Iterable

from reprieve.queue.v1alpha1 import queue_pb2
from services.kube.pod import NodeAffinity, PodSpec
from services.rpc.kube_messages import pod_spec_to_message
from services.scheduler.core.plugin_args import NodeAffinityArgs, PodTopologySpreadArgs
from services.scheduler.core.profile import Profile


def hint_profiles(profiles: Iterable[Profile]) -> list[queue_pb2.HintProfile]:
    """Return what the profiles ask of their pods' nodes and spread, where they ask anything."""
    found: list[queue_pb2.HintProfile] = []
    for profile in profiles:
        asked = pod_spec_to_message(_asked(profile))
        if asked.HasField("affinity") or asked.topology_spread_constraints:
            message = queue_pb2.HintProfile(scheduler_name=profile.scheduler_name)
            if asked.HasField("affinity"):
                message.added_affinity.CopyFrom(asked.affinity.node_affinity)
            message.default_constraints.extend(asked.topology_spread_constraints)
            found.append(message)
    return found


def _asked(profile: Profile) -> PodSpec:
    """Return a pod that asks by itself for what the profile asks of all."""
    affinity, spread = profile.args.get("NodeAffinity"), profile.args.get("PodTopologySpread")
    required = affinity.added_required if isinstance(affinity, NodeAffinityArgs) else None
    return PodSpec(
        node_affinity=None if required is None else NodeAffinity(required=required),
        topology_spread_constraints=(
            spread.default_constraints if isinstance(spread, PodTopologySpreadArgs) else ()
        ),
    )
