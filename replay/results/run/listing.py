"""The objects of a run at a restart of its scheduler, as the new scheduler lists them.

Source: kubernetes v1.36 client-go tools/cache/reflector.go, ListAndWatch (an informer lists the
objects of its kind, in the order of their keys, and adds each).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from replay.results.run.cluster import ClusterObjects
from reprieve.kube.v1beta1 import object_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2

_FIELDS = {
    field.message_type.name: field.name
    for field in object_pb2.KubernetesObject.DESCRIPTOR.oneofs_by_name["object"].fields
    if field.message_type is not None
}
"""The field of a KubernetesObject by the kind of its object."""


def listed(rounds: Iterable[scheduler_pb2.Round], at_ns: int) -> list[scheduler_pb2.Event]:
    """Return the events, at `at_ns`, that add what exists after `rounds`; pods come last."""
    cluster = ClusterObjects()
    for round_ in rounds:
        for event in round_.events:
            cluster.take(event)
    return list(_added(cluster, at_ns))


def _added(cluster: ClusterObjects, at_ns: int) -> Iterator[scheduler_pb2.Event]:
    for key in sorted(cluster.objects, key=lambda key: (key[0] == "Pod", *key)):
        event = scheduler_pb2.Event(time_ns=at_ns)
        getattr(event.add, _FIELDS[key[0]]).CopyFrom(cluster.objects[key])
        yield event


def is_before_restart(round_: scheduler_pb2.Round, at_ns: int) -> bool:
    """Return whether a round was sent to the scheduler that was restarted at `at_ns`.

    The former scheduler receives what is left for it as round 0 of that instant, and the new one
    the rounds from 1 on (replay/world/loop/replay.py).
    """
    return (round_.time_ns, round_.number) < (at_ns, 1)
