"""A small trace for the tests of overrides: nodes in zones, two classes, a budget, pods."""

from __future__ import annotations

from collections.abc import Iterator

from reprieve.kube.v1beta1 import object_pb2, pod_pb2
from reprieve.trace.v1beta1 import trace_pb2
from tests.builders import make_node, make_pod


def node(name: str, zone: str, cpu: str = "4") -> object_pb2.KubernetesObject:
    """Return a node of a zone."""
    made = make_node(name).label("zone", zone).label("kubernetes.io/hostname", name)
    return object_pb2.KubernetesObject(node=made.capacity(cpu=cpu).message())


def pod(
    name: str, node_name: str = "", priority_class: str = "batch", tier: str = ""
) -> pod_pb2.Pod:
    """Return a recorded pod that requests a core, with the label "tier" where one is given."""
    made = make_pod(name, "prod").uid(f"uid-{name}").node(node_name)
    made.labels({"tier": tier} if tier else None).priority(10, class_name=priority_class)
    return made.container("main", requests={"cpu": "1"}).message()


def with_controllers() -> Iterator[trace_pb2.Record]:
    """Yield the trace with a CronJob "ticker", a StatefulSet "db", and a pod of a template."""
    yield from trace()
    ticker, db = object_pb2.KubernetesObject(), object_pb2.KubernetesObject()
    ticker.cron_job.metadata.name, ticker.cron_job.metadata.namespace = "ticker", "prod"
    template = ticker.cron_job.spec.job_template.spec.template
    template.metadata.labels["app"] = "ticker"
    db.stateful_set.metadata.name, db.stateful_set.metadata.namespace = "db", "prod"
    db.stateful_set.spec.template.metadata.labels["app"] = "db"
    template_of_one = trace_pb2.Template(id=1, pod=pod("", tier="back"))
    from_template = trace_pb2.PodCreate(template_id=1)
    from_template.pod.metadata.name = "one"
    yield trace_pb2.Record(time_ns=90, sequence=90, create=ticker)
    yield trace_pb2.Record(time_ns=91, sequence=91, create=db)
    yield trace_pb2.Record(time_ns=92, sequence=92, template=template_of_one)
    yield trace_pb2.Record(time_ns=93, sequence=93, pod_create=from_template)


def trace() -> Iterator[trace_pb2.Record]:
    """Yield the trace; each call makes new records."""
    batch, budget = object_pb2.KubernetesObject(), object_pb2.KubernetesObject()
    batch.priority_class.metadata.name, batch.priority_class.value = "batch", 10
    budget.pod_disruption_budget.metadata.name = "web"
    budget.pod_disruption_budget.metadata.namespace = "prod"
    budget.pod_disruption_budget.spec.max_unavailable.int_value = 1
    contents = [
        {"header": trace_pb2.Header(format_version=2, window_end_time_ns=99)},
        {"create": batch},
        {"create": budget},
        *({"create": node(f"n{number}", "ab"[number % 2])} for number in range(10)),
        {"pod_create": trace_pb2.PodCreate(pod=pod("on-n1", "n1"))},
        {"pod_create": trace_pb2.PodCreate(pod=pod("web-0", priority_class="web", tier="front"))},
    ]
    for sequence, content in enumerate(contents, 1):
        yield trace_pb2.Record(time_ns=sequence, sequence=sequence, **content)  # type: ignore[arg-type] # one field
