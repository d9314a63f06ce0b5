"""Requests of pods times a factor: `--set 'pods(SELECTOR).requests*=FACTOR'`."""

from __future__ import annotations

from pathlib import Path

import pytest

from replay.importers.registry import open_trace
from replay.overrides.errors import NoEffectError, OverrideError
from replay.overrides.overrides import Overrides
from reprieve.trace.v1beta1 import trace_pb2

_CLUSTER = """
apiVersion: v1
kind: Node
metadata: {name: node-1}
status: {allocatable: {cpu: "4", memory: 8Gi, pods: "10"}}
---
apiVersion: v1
kind: Pod
metadata: {name: bare, namespace: default, labels: {app: bare, tier: low}}
spec:
  containers:
  - name: main
    resources: {requests: {cpu: 100m, memory: 100Mi, example.com/gpu: 1}, limits: {cpu: 150m}}
  - {name: limited, resources: {limits: {memory: 1Gi}}}
  initContainers: [{name: i, resources: {requests: {cpu: "1"}}}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: default}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, resources: {requests: {cpu: 333m}}}]}
"""


def records(path: Path, *sets: str) -> list[trace_pb2.Record]:
    """Return the records of the cluster with overrides."""
    file = path / "cluster.yaml"
    file.write_text(_CLUSTER)
    return list(Overrides(sets=sets).records(lambda: open_trace([file]), 0))


def requests_of(changed: list[trace_pb2.Record]) -> dict[str, list[dict[str, str]]]:
    """Return the requests of the pod's and the Deployment's containers, by the object's name."""
    requests = {}
    for record in changed:
        if record.create.HasField("deployment"):
            spec = record.create.deployment.spec.template.spec
        elif record.HasField("pod_create"):
            spec = record.pod_create.pod.spec
        else:
            continue
        containers = (*spec.containers, *spec.init_containers)
        name = "web" if record.create.HasField("deployment") else "bare"
        requests[name] = [dict(container.resources.requests) for container in containers]
    return requests


def test_requests_of_selected_pods_are_multiplied(tmp_path: Path) -> None:
    """Of all containers; what is counted as wholes stays, and a limit stands for a request."""
    by_pod = requests_of(records(tmp_path, "pods(app=bare).requests*=0.5"))
    assert by_pod == {
        "bare": [
            {"cpu": "50m", "memory": "50Mi", "example.com/gpu": "1"},
            {"memory": "512Mi"},
            {"cpu": "500m"},
        ],
        "web": [{"cpu": "333m"}],
    }


def test_a_workload_s_template_is_multiplied_and_rounded_up(tmp_path: Path) -> None:
    """To thousandths of a core."""
    by_pod = requests_of(records(tmp_path, "pods(app=web).requests.cpu*=0.5"))
    assert by_pod["web"] == [{"cpu": "167m"}]


def test_a_limit_below_the_new_request_is_raised(tmp_path: Path) -> None:
    """An API server refuses a pod that requests more than its limit."""
    found = records(tmp_path, "pods(tier=low).requests.cpu*=2")
    pods = (record.pod_create.pod for record in found if record.HasField("pod_create"))
    resources = next(pods).spec.containers[0].resources
    assert (resources.requests["cpu"], resources.limits["cpu"]) == ("200m", "200m")


def test_factors_of_one_pod_multiply(tmp_path: Path) -> None:
    """Where several selectors match it."""
    sets = ("pods(app=bare).requests.cpu*=2", "pods(*).requests.cpu*=0.25")
    assert requests_of(records(tmp_path, *sets))["bare"][0]["cpu"] == "50m"


def test_a_factor_of_1_changes_no_record(tmp_path: Path) -> None:
    """So that it is a grid's baseline."""
    assert records(tmp_path, "pods(*).requests*=1") == records(tmp_path)


def test_pods_of_a_shared_template_get_a_copy_of_it() -> None:
    """Others of the template keep theirs."""
    trace = [
        trace_pb2.Record(header=trace_pb2.Header()),
        trace_pb2.Record(template=trace_pb2.Template(id=1)),
    ]
    container = trace[1].template.pod.spec.containers.add(name="c")
    container.resources.requests["cpu"] = "1"
    for app in ("a", "b", "a"):
        create = trace_pb2.PodCreate(template_id=1)
        create.pod.metadata.labels["app"] = app
        trace.append(trace_pb2.Record(pod_create=create))
    found = list(Overrides(sets=("pods(app=a).requests*=3",)).records(lambda: iter(trace), 0))
    templates = {
        record.template.id: record.template.pod.spec.containers[0].resources.requests["cpu"]
        for record in found
        if record.HasField("template")
    }
    used = [record.pod_create.template_id for record in found if record.HasField("pod_create")]
    assert [templates[number] for number in used] == ["3", "1", "3"]
    assert len(templates) == 2


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("pods(app=none).requests*=2", "has no effect: the pods have app=bare, app=web"),
        ("pods(app=web).requests.memory*=2", "the pods that it selects request no memory"),
    ],
)
def test_a_factor_without_effect_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    """With the labels that there are, or with what is not requested."""
    with pytest.raises(NoEffectError, match=problem):
        records(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("pods(app=web).requests=2", r"write pods\(SELECTOR\).requests\*=0.8"),
        ("pods(app=web).limits*=2", r"write pods\(SELECTOR\).requests\*=0.8"),
        ("pods(app=web).requests.nvidia.com/gpu*=2", "nvidia.com/gpu cannot be multiplied"),
        ("pods(app=web).requests*=-1", "write a factor of 0 to 1,000"),
        ("pods(app=web).requests*=x", "write a factor of 0 to 1,000"),
        ("pods().requests*=2", r"write \* for that"),
    ],
)
def test_another_form_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    """With what can be written."""
    with pytest.raises(OverrideError, match=problem):
        records(tmp_path, text)
