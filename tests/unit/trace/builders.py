"""Builders of traces, for tests."""

from __future__ import annotations

from reprieve.kube.v1beta1.pod_pb2 import Pod
from reprieve.trace.v1beta1.trace_pb2 import Header, Marker, PodCreate, Record


def make_header(**fields: object) -> Record:
    """Return a header's record."""
    header = Header(format_version=2)
    for name, value in fields.items():
        setattr(header, name, value)
    return Record(time_ns=0, sequence=1, header=header)


def make_marker(at_ns: int, sequence: int, name: str = "m") -> Record:
    """Return a marker's record."""
    return Record(time_ns=at_ns, sequence=sequence, marker=Marker(name=name))


def make_pod(at_ns: int, sequence: int, name: str) -> Record:
    """Return the creation of a pod."""
    pod = Pod()
    pod.metadata.name = name
    pod.spec.priority = 5
    pod.spec.containers.add(name="c").resources.requests["cpu"] = "1"
    return Record(time_ns=at_ns, sequence=sequence, pod_create=PodCreate(pod=pod))
