"""Tests of manifests and plain lists."""

from __future__ import annotations

import copy
import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from replay.errors import TraceError
from replay.importers.records import ImportOptions
from replay.importers.registry import open_trace, recognise
from replay.overrides.inventory import take_inventory
from replay.trace.validate import validate
from reprieve.kube.v1beta1.workloads_pb2 import ReplicaSet
from reprieve.trace.v1beta1.trace_pb2 import Record
from tests.living_cluster import TAKEN_NS, Raw, ago, living_cluster, named, write_list
from tests.unit.importers.builders import issues, kinds, make_object, make_pod

_POD = """apiVersion: v1
kind: Pod
metadata:
  name: {}
spec:
  containers:
  - name: c
    resources:
      requests: {{cpu: 5, memory: 1Gi}}
"""
_NODE = """apiVersion: v1
kind: Node
metadata:
  name: 'n'
status:
  capacity: {cpu: 6}
"""


def _imported(path: Path, text: str, **options: int) -> list[Record]:
    file = path / "m.yaml"
    file.write_text(text)
    return list(open_trace([file], options=ImportOptions(**options)))  # type: ignore[arg-type]  # ints only


def test_documents_come_in_their_order_with_identities(tmp_path: Path) -> None:
    """A bare `cpu: 5` is a quantity; namespace and UID are filled in."""
    text = "---\n".join([_POD.format("b"), _POD.format("a")])
    records = _imported(tmp_path, text)
    pods = [record.pod_create.pod for record in records if record.HasField("pod_create")]
    assert [pod.metadata.name for pod in pods] == ["b", "a"]
    assert pods[0].metadata.namespace == "default"
    assert pods[0].metadata.uid
    assert pods[0].metadata.uid != pods[1].metadata.uid
    assert pods[0].spec.containers[0].resources.requests["cpu"] == "5"
    assert pods == [
        record.pod_create.pod
        for record in _imported(tmp_path, text)
        if record.HasField("pod_create")
    ]


def test_a_cluster_scoped_object_is_created_without_a_namespace(tmp_path: Path) -> None:
    """A chart may give one to all of its objects; an API server clears it."""
    text = """
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: high, namespace: shop}
value: 1000
"""
    created = [record.create for record in _imported(tmp_path, text)]
    named = [item.priority_class.metadata for item in created if item.HasField("priority_class")]
    assert [(meta.namespace, meta.name) for meta in named] == [("", "high")]


def test_a_repeated_pod_spec_becomes_a_template(tmp_path: Path) -> None:
    """From the second pod on."""
    text = "---\n".join(_POD.format(name) for name in ("a", "b", "c"))
    records = _imported(tmp_path, text)
    assert kinds(records) == ["header", "pod_create", "template", "pod_create", "pod_create"]
    assert [record.pod_create.template_id for record in records[3:]] == [1, 1]
    assert not records[3].pod_create.pod.HasField("spec")
    assert records[2].template.pod.spec == records[1].pod_create.pod.spec


def test_existing_objects_precede_new_workloads(tmp_path: Path) -> None:
    """Workloads are spaced, nodes and placed pods are there from the beginning."""
    placed = _POD.format("placed") + "  nodeName: 'n'\n"
    text = "---\n".join([_POD.format("a"), _NODE, placed, _POD.format("b")])
    records = _imported(tmp_path, text, every_ns=10)
    assert [
        (record.time_ns, kind) for record, kind in zip(records, kinds(records), strict=True)
    ] == [
        (0, "header"),
        (0, "create node"),
        (0, "pod_create"),
        (0, "template"),
        (0, "pod_create"),
        (10, "pod_create"),
    ]
    assert records[2].pod_create.pod.spec.node_name == "n"


_DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {{name: web{0}}}
spec:
  replicas: {1}
  selector: {{matchLabels: {{app: web}}}}
  template: {{metadata: {{labels: {{app: web}}}}, spec: {{containers: [{{name: c, image: i}}]}}}}
---
"""
_STANDS = ', uid: u, creationTimestamp: "2026-01-01T00:00:00Z"'


def _deployments(records: list[Record]) -> list[tuple[str, str, int]]:
    versions: list[tuple[str, str, int]] = []
    for record in records:
        kind = record.WhichOneof("record") or ""
        if kind in {"create", "update"}:
            made = getattr(record, kind).deployment
            versions.append((kind, made.metadata.uid, made.spec.replicas))
    return versions


def test_a_manifest_of_what_exists_is_an_update(tmp_path: Path) -> None:
    """With the object's identity, and after all that exists."""
    text = _DEPLOYMENT.format(_STANDS, 2) + _DEPLOYMENT.format("", 5)
    records = _imported(tmp_path, text, every_ns=1)
    assert _deployments(records) == [("create", "u", 2), ("update", "u", 5)]
    (noted,) = issues(records)
    assert (noted.kind, noted.where[-6:]) == ("duplicate-object", "line 9")
    assert noted.message.startswith("Deployment default/web is in")
    assert noted.message.endswith("this one is applied to it")
    assert records[-1].update.deployment.metadata.HasField("creation_timestamp")


@pytest.mark.parametrize("stands", ["", _STANDS])
def test_of_two_documents_of_one_object_the_later_one_is_taken(tmp_path: Path, stands: str) -> None:
    """A folder that was copied, or two snapshots."""
    text = _DEPLOYMENT.format("", 2) + _DEPLOYMENT.format(stands, 5)
    records = _imported(tmp_path, text)
    assert [(kind, count) for kind, _, count in _deployments(records)] == [("create", 5)]
    assert [issue.kind for issue in issues(records)] == ["duplicate-object"]


def test_a_pod_that_exists_is_not_changed_by_its_manifest(tmp_path: Path) -> None:
    """Most of a pod's spec cannot be changed."""
    bound = _POD.format("a") + "\n  nodeName: 'n'\n"
    records = _imported(tmp_path, bound + "---\n" + _POD.format("a"))
    (pod,) = [record.pod_create.pod for record in records if record.HasField("pod_create")]
    assert pod.spec.node_name == "n"
    (noted,) = [issue for issue in issues(records) if issue.kind == "duplicate-object"]
    assert noted.message.endswith("it exists and is not changed")


def test_an_ended_pod_exists_for_its_manifest(tmp_path: Path) -> None:
    """A snapshot's Succeeded pod does not run again."""
    ended = _POD.format("a") + "status: {phase: Succeeded}\n"
    records = _imported(tmp_path, ended + "---\n" + _POD.format("a"))
    assert not any(record.HasField("pod_create") for record in records)


def test_generated_names_are_unique(tmp_path: Path) -> None:
    """Also of pods that have a node, and after documents that replace others."""
    pod = _POD.replace("name: {}", "generateName: a-")
    bound = pod + "  nodeName: 'n'\n"
    records = _imported(
        tmp_path, "---\n".join([bound, bound, pod, pod]).replace("{{", "{").replace("}}", "}")
    )
    names = [
        record.pod_create.pod.metadata.name for record in records if record.HasField("pod_create")
    ]
    assert len(names) == len({*names}) == 4


def test_a_template_that_was_not_rendered_is_refused_with_what_to_do(tmp_path: Path) -> None:
    """Helm's charts are no YAML."""
    with pytest.raises(TraceError, match=r"line 3, column \d+: .* as helm template does"):
        _imported(tmp_path, "apiVersion: v1\nkind: Pod\nmetadata: {name: {{ .Release.Name }}}\n")


def test_lists_are_read_whatever_prints_them(tmp_path: Path) -> None:
    """`kubectl get -o json`, -o yaml, and a raw list whose items have no kind."""
    pod = make_pod("p", 1)
    bare = {name: pod[name] for name in ("metadata", "spec", "status")}
    for number, raw in enumerate(
        [
            {"apiVersion": "v1", "kind": "List", "items": [pod]},
            {"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": [bare]},
        ]
    ):
        file = tmp_path / f"{number}.json.gz"
        file.write_bytes(gzip.compress(json.dumps(raw, indent=2).encode()))
        assert recognise(file) == "manifests"
        assert kinds(open_trace([file])) == ["header", "pod_create"]


def test_ended_pods_and_kinds_that_are_not_carried_are_left_out_and_reported(
    tmp_path: Path,
) -> None:
    """Counted, not dropped silently; an API group decides, not the kind's name alone."""
    raw = [
        make_pod("done", 1, phase="Succeeded"),
        {"apiVersion": "serving.knative.dev/v1", "kind": "Service", "metadata": {"name": "s"}},
        {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {}},
    ]
    file = tmp_path / "l.json"
    file.write_text(json.dumps({"kind": "List", "items": raw}))
    issues_found = Counter(issue.kind for issue in issues(open_trace([file])))
    assert issues_found == {"ended-pod": 1, "unread-kind": 1, "not-simulated": 1}


def test_a_class_within_a_container_is_reported(tmp_path: Path) -> None:
    """The seed's own Deployment has it there, where Kubernetes ignores it."""
    raw = make_object(
        "Deployment",
        "d",
        1,
        spec={
            "template": {
                "spec": {
                    "containers": [{"name": "c", "priorityClassName": "high-priority"}],
                    "priorityClassName": "right",
                }
            },
            "nodeSelector": {},
        },
    )
    file = tmp_path / "d.json"
    file.write_text(json.dumps(raw))
    messages = [issue.message for issue in issues(open_trace([file]))]
    assert len(messages) == 2
    assert "spec.nodeSelector" in messages[0]
    assert "spec.template.spec.containers[0].priorityClassName" in messages[1]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("kind: Pod\napiVersion: v1\nmetadata: {}\n", r"m\.yaml, line 1: Pod: metadata\.name"),
        ("kind: Pod\n---\n- a\n", r"line 2: is not a Kubernetes object"),
        ("kind: Pod\n---\na: b: c\n", r"line 3, column 5: is not YAML"),
        (_POD.format("a") + "  priority: high\n", r"line 1: Pod: spec\.priority"),
    ],
)
def test_a_broken_manifest_is_refused_with_its_line(
    tmp_path: Path, text: str, problem: str
) -> None:
    """And with the field."""
    with pytest.raises(TraceError, match=problem):
        _imported(tmp_path, text)


def _list(path: Path, items: list[Raw], **options: int) -> list[Record]:
    file = write_list(path / "list.yaml", items)
    return list(open_trace([file], options=ImportOptions(**options)))  # type: ignore[arg-type]  # ints only


def test_a_snapshot_begins_at_the_latest_time_of_something_that_has_happened(
    tmp_path: Path,
) -> None:
    """Here a node's heartbeat; the deadline of a pod that terminates lies after it."""
    records = _list(tmp_path, living_cluster())
    assert {record.time_ns for record in records} == {TAKEN_NS}


@pytest.mark.parametrize(
    ("kind", "where"),
    [
        ("Pod", ("metadata", "creationTimestamp")),
        ("Pod", ("status", "startTime")),
        ("Pod", ("status", "conditions", 0, "lastTransitionTime")),
        ("Pod", ("status", "containerStatuses", 0, "state", "running", "startedAt")),
        ("Node", ("status", "conditions", 0, "lastHeartbeatTime")),
        ("Job", ("status", "startTime")),
    ],
)
def test_each_kind_of_time_can_be_the_latest(
    tmp_path: Path, kind: str, where: tuple[str | int, ...]
) -> None:
    """A creation, a start, a transition, a heartbeat."""
    items = living_cluster()
    held: Any = next(item for item in items if item["kind"] == kind)
    for step in where[:-1]:
        held = held[step]
    held[where[-1]] = "2026-03-02T09:30:05Z"
    assert _list(tmp_path, items)[0].time_ns == TAKEN_NS + 5 * 10**9


def test_now_sets_the_beginning_of_a_snapshot(tmp_path: Path) -> None:
    """Not before something has happened, which is named."""
    assert _list(tmp_path, living_cluster(), now_ns=TAKEN_NS + 1)[0].time_ns == TAKEN_NS + 1
    problem = r"items\[\d+\].*09:30:00.000Z, which is after --now 2026-03-02T09:29:59.000Z; give"
    with pytest.raises(TraceError, match=problem):
        _list(tmp_path, living_cluster(), now_ns=TAKEN_NS - 10**9)


def test_now_is_for_manifests_alone() -> None:
    """A recording has times of its own."""
    demo = Path(__file__).parents[3] / "examples" / "traces" / "nginx-preemption.jsonl"
    with pytest.raises(TraceError, match="--now is for manifests"):
        list(open_trace([demo], options=ImportOptions(now_ns=1)))


def test_classes_stand_first_and_pending_pods_last_by_creation(tmp_path: Path) -> None:
    """Whatever their places in the list; pods without a time come behind those, in file order."""
    items = living_cluster()
    waiting = named(items, "Pod", "too-big")
    for name, created in (("c", None), ("b", None), ("late", ago(minutes=1)), ("a", ago(days=3))):
        owner = {**waiting["metadata"], "name": name, "uid": name, "creationTimestamp": created}
        items.insert(0, {**waiting, "metadata": owner})
    records = _list(tmp_path, items)
    created_kinds = [kind for kind in kinds(records) if kind.startswith(("create", "pod"))]
    assert created_kinds[:4] == ["create priority_class"] * 3 + ["pod_create"]
    pending = [record.pod_create.pod for record in records if record.HasField("pod_create")]
    names = [pod.metadata.name for pod in pending if not pod.spec.node_name]
    assert names == ["a", "too-big", "late", "b", "c"]


def test_a_priority_class_later_in_a_list_is_not_missing(tmp_path: Path) -> None:
    """Neither for the warnings of `validate` nor for `--set`."""
    path = write_list(tmp_path / "list.yaml", living_cluster())
    assert not any("PriorityClass" in text for text in validate(open_trace([path])).warnings)
    inventory = take_inventory(open_trace([path]))
    assert inventory.classes["frontend"] is not None
    unnamed = [obj for obj in living_cluster() if obj["kind"] not in {"PriorityClass", "Pod"}]
    path = write_list(tmp_path / "less.yaml", unnamed)
    assert any("'frontend' is missing" in text for text in validate(open_trace([path])).warnings)
    assert take_inventory(open_trace([path])).classes["frontend"] is None


def test_existing_objects_are_not_spaced(tmp_path: Path) -> None:
    """--every spaces what is new: what has no creationTimestamp."""
    items = living_cluster()
    for name in ("new-a", "new-b"):
        pod = copy.deepcopy(named(items, "Pod", "too-big"))
        pod["metadata"].update(name=name, uid=name, creationTimestamp=None)
        items.append(pod)
    records = _list(tmp_path, items, every_ns=10)
    times = {record.pod_create.pod.metadata.name: record.time_ns - TAKEN_NS for record in records}
    assert (times["too-big"], times["new-a"], times["new-b"]) == (0, 0, 10)


def test_a_missing_replica_set_is_inferred_from_its_deployment_and_its_pods(tmp_path: Path) -> None:
    """It is the one that the list would have held, as far as a replay reads it."""
    items = living_cluster()
    whole = {
        replica_set.metadata.uid: replica_set
        for replica_set in _replica_sets(_list(tmp_path, items))
    }
    less = _list(tmp_path, [item for item in items if item["kind"] != "ReplicaSet"])
    inferred = _replica_sets(less)
    assert [replica_set.metadata.uid for replica_set in inferred] == list(whole)
    for replica_set in inferred:
        listed = whole[replica_set.metadata.uid]
        assert replica_set.spec == listed.spec
        assert replica_set.metadata.name == listed.metadata.name
        assert [owner.uid for owner in replica_set.metadata.owner_references] == [
            owner.uid for owner in listed.metadata.owner_references
        ]
    assert Counter(issue.kind for issue in issues(less))["inferred"] == 1
    assert next(issue.count for issue in issues(less) if issue.kind == "inferred") == 3


def test_of_two_missing_replica_sets_the_newer_one_has_the_current_template(tmp_path: Path) -> None:
    """A rollout was under way."""
    items = [obj for obj in living_cluster() if obj["kind"] != "ReplicaSet"]
    old = next(item for item in items if item["metadata"]["name"].startswith("web-3d"))
    old["metadata"]["labels"]["pod-template-hash"] = "0ld"
    old["metadata"]["ownerReferences"][0].update(name="web-0ld", uid="old-set")
    old["metadata"]["creationTimestamp"] = ago(days=3)
    old["spec"]["containers"][0]["image"] = "registry.example/web:0"
    images = {
        replica_set.metadata.name: replica_set.spec.template.spec.containers[0].image
        for replica_set in _replica_sets(_list(tmp_path, items))
    }
    assert images["web-0ld"] == "registry.example/web:0"
    assert images["web-3d9f7c5b6"] == "registry.example/web:1"


def test_a_missing_class_is_inferred_from_the_pods_that_were_admitted_with_it(
    tmp_path: Path,
) -> None:
    """The pod that was created last tells its value."""
    items = [obj for obj in living_cluster() if obj["kind"] != "PriorityClass"]
    records = _list(tmp_path, items)
    classes = [
        record.create.priority_class for record in records if "priority_class {" in str(record)
    ]
    assert {class_.metadata.name: class_.value for class_ in classes} == {
        "frontend": 1000,
        "nightly": 10,
    }
    assert "inferred" in {issue.kind for issue in issues(records)}


def test_what_a_list_lacks_and_cannot_be_inferred_is_noted(tmp_path: Path) -> None:
    """A pod's controller, a pod's node, a controller's pods."""
    items = living_cluster()
    without = {
        "missing-owner": [item for item in items if item["kind"] not in {"DaemonSet", "Job"}],
        "missing-node": [item for item in items if item["metadata"]["name"] != "worker-1"],
        "missing-pods": [
            item for item in items if not item["metadata"]["name"].startswith(("db-", "agent-"))
        ],
    }
    counts = {"missing-owner": 8, "missing-node": 4, "missing-pods": 2}
    for kind, rest in without.items():
        issues_found = {issue.kind: issue.count for issue in issues(_list(tmp_path, rest))}
        assert issues_found == {"ended-pod": 1, kind: counts[kind]}


def test_an_ended_pod_that_its_job_has_not_counted_is_kept(tmp_path: Path) -> None:
    """Its finalizer tells; the Job's status counts it once the controller has seen it."""
    items = living_cluster()
    ended = named(items, "Pod", "import-9zzzz")
    ended["metadata"]["finalizers"] = ["batch.kubernetes.io/job-tracking"]
    records = _list(tmp_path, items)
    names = {record.pod_create.pod.metadata.name for record in records}
    assert "import-9zzzz" in names
    assert not list(issues(records))


def _replica_sets(records: list[Record]) -> list[ReplicaSet]:
    created = (record.create for record in records if record.HasField("create"))
    return [entry.replica_set for entry in created if entry.HasField("replica_set")]


_LIMITED = """
apiVersion: v1
kind: Pod
metadata: {{name: {0}{2}}}
spec: {{{1}containers: [{{name: c, resources: {{limits: {{cpu: 2}}}}}}]}}
---
"""


def test_what_no_api_server_has_created_gets_its_defaults(tmp_path: Path) -> None:
    """A pod requests its limits, placed or not; one of a list is as it was admitted."""
    created = ', creationTimestamp: "2026-01-01T00:00:00Z"'
    text = _LIMITED.format("new", "", "") + _LIMITED.format("placed", "nodeName: 'n', ", "")
    text += _LIMITED.format("listed", "", created) + _DEPLOYMENT.format("", 2)
    pods, templates = {}, {}
    for record in _imported(tmp_path, text):
        if record.HasField("template"):
            templates[record.template.id] = record.template.pod
        elif record.HasField("pod_create"):
            pod = record.pod_create.pod
            spec = templates.get(record.pod_create.template_id, pod).spec
            pods[pod.metadata.name] = dict(spec.containers[0].resources.requests)
        elif record.HasField("create"):
            deployment = record.create.deployment
    assert pods == {"new": {"cpu": "2"}, "placed": {"cpu": "2"}, "listed": {}}
    assert deployment.spec.strategy.type == "RollingUpdate"
    assert deployment.spec.strategy.rolling_update.max_surge.string_value == "25%"
    assert not deployment.spec.template.spec.restart_policy
