"""Questions about clusters that grow and shrink, whose answers follow by hand.

A scan comes every 10 s, a node 90 s after its request, and what is not needed goes after 10 min.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest

from replay.world.loop.replay import Replay
from tests.e2e.commands import reprieve
from tests.torture.kill_traces import scaled_groups

pytestmark = pytest.mark.e2e
NODE = """
apiVersion: v1
kind: Node
metadata: {{name: {name}, labels: {{pool: {pool}, kubernetes.io/hostname: {name}}}}}
status: {{capacity: {{cpu: "{cpu}", memory: 16Gi, pods: "110"}}}}
---
"""
DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {{name: {name}, namespace: default}}
spec:
  replicas: {replicas}
  selector: {{matchLabels: {{app: {name}}}}}
  template:
    metadata: {{labels: {{app: {name}}}}}
    spec:
      containers: [{{name: c, image: i, resources: {{requests: {{cpu: "{cpu}"}}}}}}]
---
"""
DAEMON_SET = """
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent, namespace: kube-system}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec:
      containers: [{name: c, image: i, resources: {requests: {cpu: 500m}}}]
---
"""
JOB = """
apiVersion: batch/v1
kind: Job
metadata: {{name: {name}, namespace: default}}
spec:
  completions: {pods}
  parallelism: {pods}
  template:
    metadata: {{labels: {{app: {name}}}}}
    spec:
      restartPolicy: Never
      containers: [{{name: c, image: i, resources: {{requests: {{cpu: "{cpu}"}}}}}}]
---
"""
BUDGET = """
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: b, namespace: default}
spec:
  maxUnavailable: 0
  selector: {matchLabels: {app: web}}
---
"""
GROUP = """
groups:
- name: general
  min: {least}
  max: {most}
  nodes: {{labels: {{pool: general}}}}
  copy: node-1
  price: 0.36
"""


def general(name: str = "node-1", cpu: str = "4") -> str:
    """Return a node of the group."""
    return NODE.format(name=name, pool="general", cpu=cpu)


class Run:
    """A replay of a cluster with node groups: its decisions and its summary."""

    def __init__(self, folder: Path, cluster: str, groups: str, *options: str) -> None:
        (folder / "cluster.yaml").write_text(cluster, encoding="utf-8")
        (folder / "groups.yaml").write_text(groups, encoding="utf-8")
        arguments = ["cluster.yaml", "--autoscaler", "groups.yaml", "--run", "run", "-o", "json"]
        done = reprieve(folder, "replay", *arguments, "--force", *options)
        self.folder = folder
        self.said = done.stderr
        self.summary: dict[str, Any] = orjson.loads(done.stdout)
        lines = (folder / "run" / "decisions.jsonl").read_bytes().splitlines()
        self.decisions = [orjson.loads(line) for line in lines]

    def log(self, *kinds: str) -> list[tuple[int, str, str]]:
        """Return the decisions of some kinds as (seconds, object, detail)."""
        rows = []
        for decision in self.decisions:
            observed = decision["observed"]
            for kind in kinds:
                if kind in observed:
                    at_s = int(decision.get("atNs", 0)) // 10**9
                    rows.append((at_s, observed["object"]["name"], _detail(kind, observed[kind])))
        return rows

    @property
    def notes(self) -> list[str]:
        """Return the notes' texts."""
        return [note["text"] for note in self.summary["notes"]]

    @property
    def group(self) -> dict[str, Any]:
        """Return the figures of the first group."""
        figures: dict[str, Any] = self.summary["node_groups"][0]
        return figures


def _detail(kind: str, observed: dict[str, Any]) -> str:
    if kind == "scaledUp":
        return f"{observed.get('fromSize', 0)}->{observed['toSize']}"
    if kind == "nodeRemoval":
        return str(observed["step"])
    return str(observed.get("nodeName") or observed.get("message", ""))


def test_daemon_sets_count_in_what_a_new_node_can_take(tmp_path: Path) -> None:
    """Of 4 cores half of one is the agent's: 3 pods of a core a node, so 7 pods need 3 nodes."""
    cluster = general() + DAEMON_SET + DEPLOYMENT.format(name="web", replicas=7, cpu=1)
    run = Run(tmp_path, cluster, GROUP.format(least=1, most=5))
    assert run.log("scaledUp") == [(10, "general", "1->3")]
    assert run.log("nodeProvisioned") == [(100, "general-new-1", ""), (100, "general-new-2", "")]
    bound = [node for _, name, node in run.log("scheduled") if name.startswith("web")]
    assert sorted(map(bound.count, {*bound})) == [2, 2, 3]
    assert run.summary["unbound"]["pods"] == 0
    assert (run.group["first"], run.group["last"], run.group["peak"]) == (1, 3, 3)


def test_a_node_that_is_not_needed_goes_after_ten_minutes(tmp_path: Path) -> None:
    """The Job's pods leave node-1 at 300 s: unneeded then, and removed once 600 s have passed.

    The Deployment's pods came second, and so run on the new node.
    """
    cluster = (
        general()
        + JOB.format(name="batch", pods=6, cpu=1)
        + DEPLOYMENT.format(name="web", replicas=2, cpu=1)
    )
    groups = GROUP.format(least=1, most=5)
    run = Run(tmp_path, cluster, groups, "--model", "service-time=5m")
    assert run.log("nodeRemoval") == [(910, "node-1", "Started"), (915, "node-1", "Deleted")]
    (started, _) = [d["observed"] for d in run.decisions if "nodeRemoval" in d["observed"]]
    assert started["nodeRemoval"]["unneededSinceTimeNs"] == str(300 * 10**9)
    # node-1 for 915 s; the other from its request at 10 s to the end at 980 s; 0.36 an hour.
    assert run.group["cost"] == pytest.approx((915 + 970) * 0.0001)
    assert run.group["node_ns"] == (915 + 880) * 10**9


def test_pods_are_drained_to_where_they_fit(tmp_path: Path) -> None:
    """Two nodes with a pod of a core each: one of them can go, and its pod moves to the other."""
    cluster = general() + general("node-2") + DEPLOYMENT.format(name="web", replicas=2, cpu=1)
    run = Run(tmp_path, cluster, GROUP.format(least=0, most=5))
    steps = run.log("nodeRemoval")
    assert [step for _, _, step in steps] == ["Started", "Deleted"]
    gone = steps[0][1]
    moved = [row for row in run.log("scheduled") if row[0] > 0]
    assert [node for _, _, node in moved] == ["node-1" if gone == "node-2" else "node-2"]
    removed = [
        d["observed"]["removed"]["cause"] for d in run.decisions if "removed" in d["observed"]
    ]
    assert removed == ["scaled-down"]


def test_a_group_has_options_of_its_own(tmp_path: Path) -> None:
    """Numbers may be written as such: a node goes after two minutes, of a share of 0.3 at most."""
    cluster = general() + general("node-2") + DEPLOYMENT.format(name="web", replicas=2, cpu=1)
    options = "  options: {scale-down-unneeded-time: 2m, scale-down-utilization-threshold: 0.3}\n"
    run = Run(tmp_path, cluster, GROUP.format(least=0, most=5) + options)
    at_s, _, step = run.log("nodeRemoval")[0]
    assert (at_s, step) == (140, "Started")
    strict = options.replace("0.3", "0.2")
    run = Run(tmp_path, cluster, GROUP.format(least=0, most=5) + strict)
    assert run.log("nodeRemoval") == []


def test_clones_of_nodes_are_machines_of_their_own(tmp_path: Path) -> None:
    """Two nodes more of one that has a provider ID: all three go down to the least."""
    node = general().replace("status:", "spec: {providerID: 'aws:///a/i-1'}\nstatus:")
    run = Run(tmp_path, node, GROUP.format(least=1, most=5), "--scale-nodes", "+2")
    assert (run.group["first"], run.group["last"], run.group["removed"]) == (3, 1, 2)


def test_a_budget_keeps_a_node(tmp_path: Path) -> None:
    """It allows no disruption: neither of the two nodes can go; the run ends, and says why."""
    cluster = (
        general() + general("node-2") + DEPLOYMENT.format(name="web", replicas=2, cpu=1) + BUDGET
    )
    run = Run(tmp_path, cluster, GROUP.format(least=0, most=5))
    assert run.log("nodeRemoval", "removed") == []
    stay = [note for note in run.notes if "would not remove" in note]
    assert len(stay) == 2
    assert all("BlockedByPod default/web-" in note and "(NotEnoughPdb)" in note for note in stay)


def test_a_cluster_without_pods_shrinks_to_the_minimum(tmp_path: Path) -> None:
    """Four empty nodes, of which one is the least."""
    cluster = "".join(general(f"node-{number}") for number in range(1, 5))
    run = Run(tmp_path, cluster, GROUP.format(least=1, most=5))
    assert len([step for *_, step in run.log("nodeRemoval") if step == "Deleted"]) == 3
    assert run.group["last"] == 1
    assert run.summary["end"] == "finished"


def test_no_group_is_scaled_for_a_pod_that_would_not_fit(tmp_path: Path) -> None:
    """A node has 4 cores, the pod wants 5; explain says so."""
    cluster = general() + DEPLOYMENT.format(name="web", replicas=1, cpu=5)
    run = Run(tmp_path, cluster, GROUP.format(least=1, most=5))
    assert run.log("scaledUp") == []
    ((at_s, pod, _),) = run.log("noScaleUp")
    assert at_s == 10
    output = reprieve(tmp_path, "explain", pod, "run").stdout
    assert "no node group could hold it: general: the pod would not fit a new node" in output


def test_the_cheapest_fit_is_chosen_by_least_waste(tmp_path: Path) -> None:
    """A pod of 2 cores wastes less of a small node than of a large one."""
    groups = """
groups:
- name: large
  max: 3
  template: {status: {capacity: {cpu: "16", memory: 16Gi, pods: "9"}}}
- name: small
  max: 3
  template: {status: {capacity: {cpu: "2", memory: 2Gi, pods: "9"}}}
"""
    cluster = NODE.format(name="fixed", pool="fixed", cpu=1) + DEPLOYMENT.format(
        name="web", replicas=1, cpu=2
    )
    run = Run(tmp_path, cluster, groups)
    assert run.log("scaledUp") == [(10, "small", "0->1")]
    run = Run(tmp_path, cluster, "flags: {expander: most-pods}\n" + groups)
    assert [name for _, name, _ in run.log("scaledUp")] in (["large"], ["small"])


def test_pods_that_are_too_young_are_waited_for(tmp_path: Path) -> None:
    """They count once they are older than five minutes: at the scan after 310 s."""
    cluster = general() + DEPLOYMENT.format(name="web", replicas=5, cpu=1)
    flags = "flags: {new-pod-scale-up-delay: 5m}\n"
    run = Run(tmp_path, cluster, flags + GROUP.format(least=1, most=5))
    assert run.log("scaledUp") == [(310, "general", "1->2")]


def test_nodes_that_cannot_be_made_back_their_group_off(tmp_path: Path) -> None:
    """5 min after the first failure, then 10; after an hour the run ends, and says why."""
    cluster = general() + DEPLOYMENT.format(name="web", replicas=5, cpu=1)
    groups = GROUP.format(least=1, most=5)
    run = Run(tmp_path, cluster, groups, "--model", "node-failures=100%")
    asked = [at_s for at_s, *_ in run.log("scaledUp")]
    assert asked[0] == 10
    # Found by the scan at 100 s; its backoff is over after 400 s, strictly.
    assert asked[1] == 410
    assert run.group["failed"] == len(asked)
    assert run.group["added"] == 0
    assert any("scale-ups have failed for an hour" in note for note in run.notes)


def test_recorded_scaling_is_left_out(tmp_path: Path) -> None:
    """Nodes that came later, and deletions, are the recorded autoscaler's."""
    reprieve(tmp_path, "generate", "--pods", "5", "--nodes", "2", "-o", "t.jsonl")
    lines = (tmp_path / "t.jsonl").read_text(encoding="utf-8").splitlines()
    first = [lines[0], *(line for line in lines if '"node":' in line)]
    nodes = list(map(orjson.loads, first[1:]))
    later = orjson.loads(orjson.dumps(nodes[0]))
    later["atNs"], later["sequence"] = str(10**9), "1000"
    node = later["create"]["node"]
    node["metadata"] = {"name": "later", "labels": node["metadata"]["labels"]}
    gone = {
        "atNs": str(2 * 10**9),
        "sequence": "1001",
        "delete": {
            "object": {"kind": "Node", "name": nodes[1]["create"]["node"]["metadata"]["name"]}
        },
    }
    text = "\n".join([*first, orjson.dumps(later).decode(), orjson.dumps(gone).decode()])
    (tmp_path / "later.jsonl").write_text(text + "\n", encoding="utf-8")
    groups = reprieve(tmp_path, "node-groups", "later.jsonl").stdout
    (tmp_path / "g.yaml").write_text(groups, encoding="utf-8")
    arguments = ["later.jsonl", "--autoscaler", "g.yaml", "--run", "r", "-o", "json"]
    summary = orjson.loads(reprieve(tmp_path, "replay", *arguments).stdout)
    texts = [note["text"] for note in summary["notes"] if note["kind"] == "autoscaler"]
    assert len(texts) == 2
    assert sum(group["first"] for group in summary["node_groups"]) == 2


@pytest.mark.parametrize(
    ("groups", "problem"),
    [
        ("groups: []", "groups: at least one is required"),
        ("groups: [{name: a, max: 1, copy: x}]", "groups[0].copy: the trace has no node x"),
        (
            "groups: [{name: a, max: 1}]",
            "groups[0]: write either template, a node, or copy, the name of a node of the trace",
        ),
        ("groups: [{name: a, min: 2, max: 1, copy: node-1}]", "0 <= min <= max"),
        ("flags: {no-such: 1}\n" + GROUP.format(least=0, most=1), "no-such is not a flag"),
        ("groups: [{name: a, max: 1, copy: node-1, color: red}]", "groups[0].color"),
        ("flags: {scan-interval: 0s}\n" + GROUP.format(least=0, most=1), "flags.scan-interval"),
        ("[", "is neither YAML nor JSON"),
    ],
)
def test_a_bad_file_is_refused_by_the_field(tmp_path: Path, groups: str, problem: str) -> None:
    """Nothing is written."""
    (tmp_path / "c.yaml").write_text(general(), encoding="utf-8")
    (tmp_path / "g.yaml").write_text(groups, encoding="utf-8")
    arguments = ["replay", "c.yaml", "--autoscaler", "g.yaml", "--run", "run"]
    done = reprieve(tmp_path, *arguments, code=2)
    assert problem in done.stderr
    assert not (tmp_path / "run").exists()


def test_claims_of_devices_are_refused_by_name(tmp_path: Path) -> None:
    """A scale-up would be decided without them."""
    pod = """
apiVersion: v1
kind: Pod
metadata: {name: gpu, namespace: ml}
spec:
  resourceClaims: [{name: g, resourceClaimTemplateName: t}]
  containers: [{name: c, image: i}]
"""
    (tmp_path / "c.yaml").write_text(general() + pod, encoding="utf-8")
    done = reprieve(tmp_path, "replay", "c.yaml", "--autoscaler", "infer", code=2)
    assert "pod ml/gpu claims devices" in done.stderr


def test_inferred_groups_are_a_file_that_can_be_edited(tmp_path: Path) -> None:
    """By a pool's label, and by machine; Karpenter's nodes only where that is asked for."""
    eks = general("eks-1").replace("pool: general", "eks.amazonaws.com/nodegroup: web")
    karpenter = general("k-1").replace("pool: general", "karpenter.sh/nodepool: spot")
    control = general("cp").replace("pool: general", "node-role.kubernetes.io/control-plane: ''")
    cluster = eks + eks.replace("eks-1", "eks-2") + general(cpu="8") + karpenter + control
    (tmp_path / "c.yaml").write_text(cluster, encoding="utf-8")
    done = reprieve(tmp_path, "node-groups", "c.yaml")
    names = [line for line in done.stdout.splitlines() if line.startswith("- name")]
    assert names == ["- name: web", "- name: cpu-8-pods-110"]
    assert "eks.amazonaws.com/nodegroup: web" in done.stdout
    assert "spot" in done.stderr
    with_karpenter = reprieve(tmp_path, "node-groups", "c.yaml", "--as-groups").stdout
    assert "- name: spot" in with_karpenter
    (tmp_path / "g.yaml").write_text(done.stdout, encoding="utf-8")
    arguments = ["c.yaml", "--autoscaler", "g.yaml", "--run", "a", "-o", "json"]
    summary = orjson.loads(reprieve(tmp_path, "replay", *arguments).stdout)
    assert [(group["group"], group["first"]) for group in summary["node_groups"]] == [
        ("web", 2),
        ("cpu-8-pods-110", 1),
    ]


MACHINE = """
groups:
- name: new
  max: 5
  price: {price}
  template: {{status: {{capacity: {{cpu: "{cpu}", memory: 64Gi, pods: "110"}}}}}}
"""


def test_figures_of_groups_are_checked_and_compared(tmp_path: Path) -> None:
    """Of 12 pods 8 get no node: two machines of 4 cores, or one of 16 at the price of four."""
    cluster = general() + DEPLOYMENT.format(name="web", replicas=12, cpu=1)
    checks = ["cost{group=new} > 0", "nodes_added == 2", "scale_ups{group=new} == 1"]
    options = [text for check in checks for text in ("--assert", check)]
    Run(tmp_path, cluster, MACHINE.format(price=0.36, cpu=4), *options)
    (tmp_path / "large.yaml").write_text(MACHINE.format(price=1.44, cpu=16), encoding="utf-8")
    reprieve(tmp_path, "replay", "cluster.yaml", "--autoscaler", "large.yaml", "--run", "large")
    shown = reprieve(tmp_path, "compare", "run", "large", "--assert", "cost.change > 0").stdout
    rows = {line.split()[0] for line in shown.splitlines() if line.strip()}
    assert {"cost", "nodes_added"} <= rows
    done = reprieve(tmp_path, "compare", "run", "large", "--assert", "cost{group=x} > 0", code=2)
    assert "there is no node group 'x'" in done.stderr


def test_tables_and_pages_have_the_groups(tmp_path: Path) -> None:
    """A node of each group over time, in the run's report and in that of a comparison."""
    cluster = general() + DEPLOYMENT.format(name="web", replicas=5, cpu=1)
    Run(tmp_path, cluster, GROUP.format(least=1, most=5))
    query = "SELECT node_name, node_group, added_ns // 1000000000 AS s FROM nodes ORDER BY s"
    rows = reprieve(tmp_path, "query", "run", query, "-o", "json").stdout
    assert [tuple(row.values()) for row in orjson.loads(rows)] == [
        ("node-1", "general", 0),
        ("general-new-1", "general", 100),
    ]
    reprieve(tmp_path, "report", "run")
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "<td>general</td>" in page
    reprieve(tmp_path, "replay", "cluster.yaml", "--run", "none", "-q")
    reprieve(tmp_path, "compare", "none", "run", "--html", "two.html")
    assert "node group general" in (tmp_path / "two.html").read_text(encoding="utf-8")


def scaled(folder: Path, name: str, *options: str) -> bytes:
    """Return the decision log of a generated cluster that grows and shrinks."""
    arguments = ["t.ktr", "--autoscaler", "g.yaml", "--until", "20m", "--run", name, "-q"]
    reprieve(folder, "replay", *arguments, *options)
    return (folder / name / "decisions.jsonl").read_bytes()


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes]:
    """Write a cluster that grows and shrinks; return its folder and its decision log."""
    folder = tmp_path_factory.mktemp("busy")
    sizes: Sequence[str] = ("--pods", "250", "--nodes", "5", "--deployments", "4", "--budgets", "2")
    times = ("--service-time", "90s", "--window", "6m")
    reprieve(folder, "generate", "--seed", "4", *sizes, *times, "-o", "t.ktr")
    (folder / "g.yaml").write_text(scaled_groups(), encoding="utf-8")
    log = scaled(folder, "run")
    for kind in (b"scaledUp", b"nodeProvisioned", b'"step":"Deleted"'):
        assert kind in log
    return folder, log


@pytest.mark.parametrize(
    "options", [("--batch-size", "1"), ("--batch-size", "7", "--spans", "off")]
)
def test_batching_changes_no_decision(
    busy: tuple[Path, bytes], tmp_path: Path, options: tuple[str, ...]
) -> None:
    """Nor does where the services run."""
    folder, log = busy
    assert scaled(folder, tmp_path.name, *options) == log


def test_look_ahead_changes_no_decision(
    busy: tuple[Path, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rounds that are sent ahead end at every scan."""
    folder, log = busy
    monkeypatch.setattr(Replay, "send_through", lambda *_: None)
    assert scaled(folder, "plain") == log


def test_no_round_is_sent_ahead_of_a_scan_of_its_own_instant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pods come when scans and deletions are due, and a second later.

    The first round of such an instant does not know what the autoscaler will do at its end.
    """
    pods = (
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,"
        "deletion_time,scheduled_time\n"
    )
    for number in range(120):
        at_s = 5 * (number // 2) + number % 2
        pods += f"p{number},2000,1024,0,0,,LS,Running,{at_s},{at_s + 12 + number % 7},{at_s}\n"
    nodes = "sn,cpu_milli,memory_mib,gpu,model\n" + "".join(
        f"n{number},4000,16384,0,\n" for number in range(6)
    )
    (tmp_path / "pods.csv").write_text(pods, encoding="utf-8")
    (tmp_path / "nodes.csv").write_text(nodes, encoding="utf-8")
    flags = "flags: {scale-down-unneeded-time: 1m, scale-down-delay-after-add: 1m}\n"
    names = {"names": [f"n{number}" for number in range(6)]}
    group = {"name": "a", "min": 3, "max": 6, "copy": "n0", "nodes": names}
    text = flags + "groups: [" + orjson.dumps(group).decode() + "]"
    (tmp_path / "g.yaml").write_text(text, encoding="utf-8")
    logs = []
    for name in ("ahead", "plain"):
        arguments = ["nodes.csv", "pods.csv", "--openb-timed", "--autoscaler", "g.yaml", "-q"]
        reprieve(tmp_path, "replay", *arguments, "--run", name)
        logs.append((tmp_path / name / "decisions.jsonl").read_bytes())
        monkeypatch.setattr(Replay, "send_through", lambda *_: None)
    assert logs[0] == logs[1]
    assert b'"step":"Deleted"' in logs[0]


def test_limits_hold_and_every_node_can_be_explained(busy: tuple[Path, bytes]) -> None:
    """A group never has more nodes than its maximum, nor fewer than its minimum."""
    folder, log = busy
    sizes: dict[str, int] = {}
    bounds = {"a": (1, 12), "b": (0, 6)}
    summary = orjson.loads((folder / "run" / "summary.json").read_bytes())
    for group in summary["node_groups"]:
        sizes[group["group"]] = group["first"]
        least, most = bounds[group["group"]]
        assert least <= group["last"] <= group["peak"] <= most
    for line in log.splitlines():
        observed = orjson.loads(line)["observed"]
        if "scaledUp" in observed and "refused" not in orjson.loads(line):
            name = observed["object"]["name"]
            assert observed["scaledUp"]["toSize"] <= bounds[name][1]
            assert observed["scaledUp"]["pods"]
        removal = observed.get("nodeRemoval")
        if removal and removal["step"] == "Deleted":
            sizes[removal["group"]] -= 1
        provisioned = observed.get("nodeProvisioned")
        if provisioned and "message" not in provisioned:
            sizes[provisioned["group"]] += 1
    assert sizes == {group["group"]: group["last"] for group in summary["node_groups"]}
