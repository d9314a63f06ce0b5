"""Tests of scheduler_perf's performance-config files."""

from __future__ import annotations

from pathlib import Path

import pytest

from replay.errors import TraceError
from replay.importers.records import ImportOptions
from replay.importers.registry import open_trace, recognise
from replay.trace.reader import OrderCheck
from reprieve.trace.v1beta1.trace_pb2 import Record
from tests.unit.importers.builders import S, deletes, issues, kinds

_CONFIG = """\
- name: Basic
  featureGates: {Gate: true}
  workloadTemplate:
  - opcode: createNodes
    countParam: $nodes
  - opcode: createPods
    count: 2
    podTemplatePath: ../templates/pod.yaml
  - opcode: createPods
    countParam: $pods
    collectMetrics: true
  workloads:
  - name: small
    params: {nodes: 2, pods: 3}
"""
_POD = """\
apiVersion: v1
kind: Pod
metadata: {generateName: low-}
spec:
  priority: 5
  containers:
  - name: c
    resources: {requests: {cpu: 900m}}
"""
_NODE = """\
apiVersion: v1
kind: Node
metadata:
  name: rack-{{Mod .Index 2}}-{{AddInt .Index 1}}
  labels: {size: "{{.Size}}"}
status:
  capacity: {cpu: "{{MultiplyInt .Index 2}}", pods: 10}
"""


def _imported(path: Path, config: str = _CONFIG, **options: object) -> list[Record]:
    """Import a config file that lies beside its templates."""
    (path / "test").mkdir(exist_ok=True)
    (path / "templates").mkdir(exist_ok=True)
    (path / "templates" / "pod.yaml").write_text(_POD)
    (path / "templates" / "node.yaml").write_text(_NODE)
    file = path / "test" / "performance-config.yaml"
    file.write_text(config)
    chosen = ImportOptions(**options)  # type: ignore[arg-type]  # a test's few options
    records = list(open_trace([file], options=chosen))
    check = OrderCheck()
    assert not [problem for record in records if (problem := check.problem(record))]
    return records


def _case(*operations: str, params: str = "{}") -> str:
    template = "".join(f"  - {operation}\n" for operation in operations)
    workload = f"  workloads:\n  - {{name: w, params: {params}}}\n"
    return f"- name: T\n  workloadTemplate:\n{template}{workload}"


def _pods(records: list[Record]) -> list[tuple[int, str, str]]:
    return [
        (
            record.time_ns // S,
            record.pod_create.pod.metadata.namespace,
            record.pod_create.pod.metadata.name,
        )
        for record in records
        if record.HasField("pod_create")
    ]


def test_a_workload_is_nodes_and_then_pods_with_a_wait_between(tmp_path: Path) -> None:
    """An operation that waits for its pods takes ten seconds unless told otherwise."""
    records = _imported(tmp_path)
    nodes = [record.create.node for record in records if record.create.HasField("node")]
    assert [node.metadata.name for node in nodes] == ["node-0-0", "node-0-1"]
    assert dict(nodes[0].status.allocatable) == {"cpu": "4", "memory": "32Gi", "pods": "110"}
    assert nodes[0].metadata.labels["kubernetes.io/hostname"] == "node-0-0"
    assert _pods(records) == [
        (0, "namespace-1", "low-0"),
        (0, "namespace-1", "low-1"),
        (10, "namespace-2", "pod-0"),
        (10, "namespace-2", "pod-1"),
        (10, "namespace-2", "pod-2"),
    ]
    assert [issue.message for issue in issues(records)] == [
        "the feature gate Gate=true is not applied"
    ]


def test_waits_and_the_time_between_pods_can_be_chosen(tmp_path: Path) -> None:
    """Both are simulated time."""
    times = [at for at, _, _ in _pods(_imported(tmp_path, wait_ns=60 * S, every_ns=S))]
    assert times == [0, 1, 62, 63, 64]


def test_pods_come_at_the_rate_of_upstreams_client(tmp_path: Path) -> None:
    """Five thousand a second, unless another time between them is requested."""
    records = [record for record in _imported(tmp_path) if record.HasField("pod_create")]
    assert records[1].time_ns - records[0].time_ns == 200_000
    records = [
        record for record in _imported(tmp_path, every_ns=0) if record.HasField("pod_create")
    ]
    assert records[1].time_ns == records[0].time_ns


def test_parameters_stand_above_the_workloads_own(tmp_path: Path) -> None:
    """Or make a workload that the file does not have."""
    more = _imported(tmp_path, workload="Basic/small", params={"nodes": 5})
    assert kinds(more).count("create node") == 5
    own = _imported(tmp_path, workload="Basic", params={"nodes": 1, "pods": 1})
    assert kinds(own).count("create node") == 1


@pytest.mark.parametrize(
    ("workload", "params", "problem"),
    [
        ("Basic/large", {}, "no workload 'Basic/large'; choose one with --workload: Basic/small"),
        ("Basic", {"nodes": 1}, "op 2: the parameter pods has no value"),
        ("Basic", {}, "Basic needs parameters"),
        ("", {"node": 1}, "--param node: no operation reads it; operations read: nodes, pods"),
        ("", {"nodes": "many"}, "op 0: createNodes: the count 'many' is not a number"),
    ],
)
def test_a_workload_that_is_not_whole_is_refused(
    tmp_path: Path, workload: str, params: dict[str, object], problem: str
) -> None:
    """With what there is to choose from."""
    with pytest.raises(TraceError, match=problem):
        _imported(tmp_path, workload=workload, params=params)


def test_several_workloads_are_listed_to_choose_from(tmp_path: Path) -> None:
    """None is taken by chance."""
    with pytest.raises(TraceError, match="choose one with --workload: Basic/small, T/w"):
        _imported(tmp_path, _CONFIG + _case("opcode: barrier"))


def test_a_node_template_is_expanded_for_each_index(tmp_path: Path) -> None:
    """With upstream's arithmetic, and parameters of the operation."""
    operation = (
        "{opcode: createNodes, count: 3, nodeTemplatePath: ../templates/node.yaml, "
        "templateParams: {Size: $size}}"
    )
    records = _imported(tmp_path, _case(operation, params="{size: large}"))
    nodes = [record.create.node for record in records if record.create.HasField("node")]
    assert [node.metadata.name for node in nodes] == ["rack-0-1", "rack-1-2", "rack-0-3"]
    assert [node.status.allocatable["cpu"] for node in nodes] == ["0", "2", "4"]
    assert nodes[0].metadata.labels["size"] == "large"


def test_node_strategies_label_nodes_and_limit_volumes(tmp_path: Path) -> None:
    """Labels go round robin; a CSINode tells how many volumes a driver takes."""
    records = _imported(
        tmp_path,
        _case(
            "{opcode: createNodes, count: 3, labelNodePrepareStrategy: "
            "{labelKey: zone, labelValues: [a, b]}}",
            "{opcode: createNodes, count: 1, nodeAllocatableStrategy: {nodeAllocatable: "
            "{x/y: '39'}, csiNodeAllocatable: {ebs: {count: 39}}, migratedPlugins: [p]}}",
        ),
    )
    nodes = [record.create.node for record in records if record.create.HasField("node")]
    assert [node.metadata.labels["zone"] for node in nodes[:3]] == ["a", "b", "a"]
    assert nodes[3].status.allocatable["x/y"] == "39"
    csi_node = next(
        record.create.csi_node for record in records if record.create.HasField("csi_node")
    )
    assert csi_node.metadata.name == nodes[3].metadata.name
    assert csi_node.spec.drivers[0].allocatable.count == 39


def test_churn_continues_while_operations_wait(tmp_path: Path) -> None:
    """Mode create makes one each interval, as long as the workload continues."""
    churn = (
        "{opcode: churn, mode: create, intervalMilliseconds: 4000, "
        "templatePaths: [../templates/pod.yaml]}"
    )
    records = _imported(tmp_path, _case(churn, "{opcode: createPods, count: 1}"))
    assert [(at, name) for at, _, name in _pods(records)] == [
        (0, "pod-0"),
        (4, "low-0"),
        (8, "low-1"),
    ]


def test_churn_recreates_its_objects(tmp_path: Path) -> None:
    """A slot is filled and emptied in turn."""
    churn = (
        "{opcode: churn, mode: recreate, number: 2, intervalMilliseconds: 1000, "
        "templatePaths: [../templates/pod.yaml]}"
    )
    records = _imported(tmp_path, _case(churn, "{opcode: sleep, duration: 5s}"))
    assert [name for _, _, name in _pods(records)] == ["low-0", "low-1", "low-2"]
    assert [delete.object.name for delete in deletes(records)] == ["low-0", "low-1"]


def test_pod_sets_have_a_namespace_each_and_count_as_operations(tmp_path: Path) -> None:
    """The next operation's own namespace is numbered behind them."""
    records = _imported(
        tmp_path,
        _case(
            "{opcode: createNamespaces, prefix: set, count: 3}",
            "{opcode: createPodSets, count: 2, namespacePrefix: set, createPodsOp: {count: 1}}",
            "{opcode: createPods, count: 1, skipWaitToCompletion: true}",
        ),
    )
    assert [(at, space) for at, space, _ in _pods(records)] == [
        (0, "set-0"),
        (10, "set-1"),
        (20, "namespace-3"),
    ]
    assert kinds(records).count("create namespace") == 4


def test_pods_are_deleted_at_their_rate(tmp_path: Path) -> None:
    """In the background, while the next pods are created."""
    records = _imported(
        tmp_path,
        _case(
            "{opcode: createPods, count: 2, namespace: ns, skipWaitToCompletion: true}",
            "{opcode: deletePods, namespace: ns, deletePodsPerSecond: 1, "
            "skipWaitToCompletion: true}",
            "{opcode: sleep, duration: 90s}",
        ),
    )
    gone = [
        (record.time_ns // S, record.delete.object.name)
        for record in records
        if record.HasField("delete")
    ]
    assert gone == [(1, "pod-0"), (2, "pod-1")]


def test_a_pods_volume_is_bound_to_its_claim(tmp_path: Path) -> None:
    """Each pod has a claim and a volume of its own, created before it."""
    (tmp_path / "test").mkdir()
    (tmp_path / "test" / "pvc.yaml").write_text(
        "apiVersion: v1\nkind: PersistentVolumeClaim\n"
        "metadata: {annotations: {pv.kubernetes.io/bind-completed: 'true'}}\n"
        "spec: {accessModes: [ReadOnlyMany]}\n"
    )
    (tmp_path / "test" / "pv.yaml").write_text(
        "apiVersion: v1\nkind: PersistentVolume\n"
        "spec: {accessModes: [ReadOnlyMany], csi: {driver: d, volumeHandle: h}}\n"
    )
    records = _imported(
        tmp_path,
        _case(
            "{opcode: createPods, count: 1, namespace: ns, persistentVolumeTemplatePath: pv.yaml, "
            "persistentVolumeClaimTemplatePath: pvc.yaml}"
        ),
    )
    volume = next(
        record.create.persistent_volume
        for record in records
        if record.create.HasField("persistent_volume")
    )
    assert volume.spec.claim_ref.name == "pvc-0"
    assert volume.spec.csi.volume_handle == volume.metadata.name == "ns-vol-0"
    pod = next(record.pod_create.pod for record in records if record.HasField("pod_create"))
    assert pod.spec.volumes[0].persistent_volume_claim.claim_name == "pvc-0"


def test_what_is_not_simulated_is_named(tmp_path: Path) -> None:
    """Device claims, updates, steady states and kinds that a trace does not carry."""
    (tmp_path / "test").mkdir()
    (tmp_path / "test" / "class.yaml").write_text("apiVersion: x/v1\nkind: DeviceClass\n")
    records = _imported(
        tmp_path,
        _case(
            "{opcode: createResourceDriver}",
            "{opcode: createAny, templatePath: class.yaml}",
            "{opcode: createPods, count: 1, steadyState: true}",
            params="{unread: 1}",
        ),
    )
    issues_found = [(issue.kind, issue.message) for issue in issues(records)]
    assert [kind for kind, _ in issues_found] == ["not-simulated"] * 3 + ["unused-parameter"]
    assert "x/v1 DeviceClass is not carried" in issues_found[1][1]


@pytest.mark.parametrize(
    ("operation", "problem"),
    [
        ("{opcode: createEverything}", "op 0: the opcode 'createEverything' is unknown"),
        ("{count: 1}", "op 0: is not an operation"),
        ("{opcode: createPods, count: -1}", "the count -1"),
        ("{opcode: createPods, countParam: nodes}", "does not begin with [$]"),
        ("{opcode: sleep, duration: long}", "sleep: time: invalid duration"),
        ("{opcode: churn, mode: create}", "templatePaths"),
        (
            "{opcode: createPods, count: 1, podTemplatePath: no.yaml}",
            "no.yaml: the template cannot",
        ),
        ("{opcode: createPods, count: 1, podTemplatePath: ../templates/node.yaml}", "no value"),
    ],
)
def test_a_broken_operation_is_refused_with_its_place(
    tmp_path: Path, operation: str, problem: str
) -> None:
    """And with what is wrong."""
    with pytest.raises(TraceError, match=problem):
        _imported(tmp_path, _case(operation))


def test_the_format_is_detected_by_its_workload_templates(tmp_path: Path) -> None:
    """Not by the file's name."""
    _imported(tmp_path)
    assert recognise(tmp_path / "test" / "performance-config.yaml") == "scheduler-perf"
    assert recognise(tmp_path / "templates" / "pod.yaml") == "manifests"
