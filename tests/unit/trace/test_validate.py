"""Tests of the report on a trace."""

from __future__ import annotations

from replay.trace.validate import NO_DEVICES, validate
from reprieve.kube.v1beta1.object_pb2 import KubernetesObject
from reprieve.trace.v1beta1.trace_pb2 import Record, Template
from tests.unit.trace.builders import make_header, make_marker, make_pod


def test_records_are_counted_and_their_times_spanned() -> None:
    """By kind."""
    report = validate([make_header(source="s"), make_pod(3, 2, "p"), make_marker(9, 3)])
    assert report.header.source == "s"
    assert report.counts == {"header": 1, "pod_create": 1, "marker": 1}
    assert (report.first_ns, report.last_ns) == (0, 9)
    assert report.objects == {"pod": 1}


def test_a_trace_without_nodes_is_warned_of() -> None:
    """Nothing could be scheduled."""
    assert "no node is created: nothing can be scheduled" in validate([make_header()]).warnings


def test_a_missing_class_is_reported_with_its_consequence() -> None:
    """A recorded priority is kept; without one the pod is refused."""
    kept, refused = make_pod(0, 2, "kept"), make_pod(0, 3, "refused")
    for record in (kept, refused):
        record.pod_create.pod.spec.priority_class_name = "gold"
    refused.pod_create.pod.spec.ClearField("priority")
    warnings = validate([make_header(), kept, refused]).warnings
    assert warnings["PriorityClass 'gold' is missing: spec.priority is kept"] == 1
    assert warnings["PriorityClass 'gold' is missing: its pods will be refused"] == 1


def test_an_earlier_priority_class_and_a_system_class_exist() -> None:
    """System classes are always there."""
    create = KubernetesObject()
    create.priority_class.metadata.name = "gold"
    gold, system = make_pod(0, 3, "a"), make_pod(0, 4, "b")
    gold.pod_create.pod.spec.priority_class_name = "gold"
    system.pod_create.pod.spec.priority_class_name = "system-node-critical"
    records = [make_header(), Record(sequence=2, create=create), gold, system]
    assert not [text for text in validate(records).warnings if "PriorityClass" in text]


def test_requests_of_a_template_are_counted_by_its_pods() -> None:
    """Two pods with device claims."""
    template = Template(id=1)
    template.pod.spec.resource_claims.add(name="gpu")
    pods = [make_pod(0, 3, "a"), make_pod(0, 4, "b")]
    for record in pods:
        record.pod_create.template_id = 1
    records = [make_header(), Record(sequence=2, template=template), *pods]
    warnings = validate(records).warnings
    assert warnings[NO_DEVICES] == 2


def test_requests_of_a_controllers_pods_are_warned_of() -> None:
    """A class that is missing, wherever the template stands."""
    create = KubernetesObject()
    template = create.cron_job.spec.job_template.spec.template
    template.spec.priority_class_name = "none"
    warnings = validate([make_header(), Record(sequence=2, create=create)]).warnings
    assert any("PriorityClass 'none' is missing" in text for text in warnings)
    assert "no pod is created" not in warnings


def test_a_missing_template_is_warned_of() -> None:
    """A trace that somebody has cut."""
    pod = make_pod(0, 2, "p")
    pod.pod_create.template_id = 4
    assert "template 4 is not in the trace" in validate([make_header(), pod]).warnings
