"""A session as JSON: what its checkpoint holds.

The objects that the caller has sent are written as they came, since a pod's equals are those with
an equal message. Specs in the state that are not those of such objects (copies for templates,
versions of pods that are being evicted) are written once each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from reprieve.autoscaler.v1beta1 import autoscaler_pb2 as pb
from reprieve.kube.v1beta1 import object_pb2, pod_pb2
from services.autoscaler.core.autoscaler import AutoscalerState
from services.autoscaler.session import AutoscalerSession
from services.kube.pod import PodSpec
from services.rpc.kube.messages import pod_spec_to_message
from services.rpc.kube.spec import spec_from_message
from services.typed import Places, Reading, write


@dataclass(frozen=True, slots=True, kw_only=True)
class _SavedSession:
    """A session between steps; `specs` is written last: it is filled while `state` is written."""

    config: pb.AutoscalerConfig
    is_started: bool
    at_ns: int
    objects: Sequence[object_pb2.KubernetesObject]
    groups: Sequence[pb.NodeGroup]
    state: object
    specs: Sequence[pod_pb2.PodSpec]


def session_to_json(session: AutoscalerSession) -> bytes:
    """Return a session as JSON; no step may be under way."""
    assert session.under_way is None, "a step under way is no value"  # noqa: S101 - an invariant
    specs = Places(pod_spec_to_message, _specs(session))
    saved = _SavedSession(
        config=session.config,
        is_started=session.is_started,
        at_ns=session.at_ns,
        objects=tuple(session.objects.values()),
        groups=tuple(session.groups.values()),
        state=session.core.state_between_instants(),
        specs=specs.rows,
    )
    return write(saved, {PodSpec: specs.place})


def session_from_plain(plain: object) -> AutoscalerSession:
    """Return the session of a checkpoint; `plain` is its JSON, loaded.

    Raises LookupError, TypeError or ValueError if `plain` is not what session_to_json wrote.
    """
    saved = Reading().read(_SavedSession, plain)
    session = AutoscalerSession(saved.config)
    session.is_started, session.at_ns = saved.is_started, saved.at_ns
    session.put_again(saved.objects, saved.groups)
    specs = [*_specs(session), *(spec_from_message(message) for message in saved.specs)]
    reading = Reading({PodSpec: specs.__getitem__})
    session.core.restore(reading.read(AutoscalerState, saved.state))
    return session


def _specs(session: AutoscalerSession) -> Iterator[PodSpec]:
    """Yield the specs of the objects that were sent, each once, in an order that they decide."""
    cluster = session.core.cluster
    specs = (
        *(pod.pod.spec for _, pod in sorted(cluster.by_key.items())),
        *(daemon_set.spec for daemon_set in cluster.daemon_sets()),
    )
    yield from {id(spec): spec for spec in specs}.values()
