"""Invariants of every cluster that an autoscaler scales.

Clusters are random: groups of several machines, Deployments with and without budgets, a DaemonSet,
Jobs that end, and pods without a controller, which nothing would make again.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from replay.world.api.pod_record import PodRecord
from replay.world.controllers.disruption import EvictionApi, EvictionRefusal
from services.autoscaler.session import AutoscalerSession
from tests.e2e.commands import reprieve
from tests.e2e.test_autoscaler_in_the_loop import DAEMON_SET, DEPLOYMENT, JOB, NODE

BUDGET = """
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {{name: {name}, namespace: default}}
spec:
  minAvailable: {least}
  selector: {{matchLabels: {{app: {name}}}}}
---
"""
BARE = """
apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: default}}
spec:
  {place}
  containers: [{{name: c, image: i, resources: {{requests: {{cpu: "{cpu}"}}}}}}]
---
"""
AGENT_MILLI = 500
REPLAY = ["replay", "c.yaml", "--autoscaler", "g.yaml", "--model", "service-time=3m", "-q"]
SIZES = st.sampled_from([1, 2, 4, 8])


@st.composite
def groups(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Return groups, each with a machine, sizes, and the number of nodes that it begins with."""
    made = []
    for number in range(draw(st.integers(1, 3))):
        least = draw(st.integers(0, 2))
        most = least + draw(st.integers(0, 5))
        cpu = draw(SIZES)
        name = f"g{number}"
        made.append(
            {
                "name": name,
                "min": least,
                "max": most,
                "nodes": {"labels": {"pool": name}},
                "provisioningDelay": f"{draw(st.sampled_from([0, 7, 90]))}s",
                "template": {
                    "metadata": {"labels": {"pool": name}},
                    "status": {"capacity": {"cpu": str(cpu), "memory": "16Gi", "pods": "110"}},
                },
                "first": draw(st.integers(least, most)),
                "cpu": cpu,
            }
        )
    return made


@st.composite
def workloads(draw: st.DrawFn) -> tuple[str, dict[str, int]]:
    """Return manifests, and the CPU in thousandths that a pod of each name's beginning requests."""
    text, milli = "", {}
    for number in range(draw(st.integers(0, 3))):
        name, cpu = f"web{number}", draw(st.sampled_from([250, 1000, 1900, 3000]))
        replicas = draw(st.integers(1, 6))
        text += DEPLOYMENT.format(name=name, replicas=replicas, cpu=f"{cpu}m")
        milli[name] = cpu
        if draw(st.booleans()):
            text += BUDGET.format(name=name, least=draw(st.integers(0, replicas)))
    for number in range(draw(st.integers(0, 2))):
        name, cpu = f"job{number}", draw(st.sampled_from([500, 1000, 3500]))
        text += JOB.format(name=name, pods=draw(st.integers(1, 5)), cpu=f"{cpu}m")
        milli[name] = cpu
    for number in range(draw(st.integers(0, 2))):
        name, cpu = f"bare{number}", draw(st.sampled_from([100, 900]))
        text += BARE.format(name=name, cpu=f"{cpu}m", place="restartPolicy: Always")
        milli[name] = cpu
    return text, milli


@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(
    groups=groups(),
    manifests=workloads(),
    agent=st.booleans(),
    force_ds=st.booleans(),
    seed=st.integers(0, 9),
)
def test_what_an_autoscaler_never_does(
    groups: list[dict[str, Any]],
    manifests: tuple[str, dict[str, int]],
    *,
    agent: bool,
    force_ds: bool,
    seed: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """It respects sizes, budgets and drainability, requests only nodes that help, and settles.

    Without force-ds a group's new nodes are expected to be as its first one, whose daemon pod may
    still be pending because other pods were bound there before it.
    """
    folder = tmp_path_factory.mktemp("scaled")
    text, milli = manifests
    flags: dict[str, Any] = {
        "scale-down-unneeded-time": "1m",
        "scale-down-delay-after-add": "1m",
        "force-ds": force_ds,
    }
    _write(folder, groups, text, flags, agent=agent)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EvictionApi, "evict", _within_budgets(EvictionApi.evict))
        reprieve(folder, *REPLAY, "--seed", str(seed), "--run", "run")
    _check(folder, groups, milli, AGENT_MILLI * (agent and force_ds))


@settings(max_examples=8, suppress_health_check=list(HealthCheck))
@given(groups=groups(), manifests=workloads(), agent=st.booleans(), delay=st.sampled_from([0, 45]))
def test_scans_that_are_left_out_change_nothing(
    groups: list[dict[str, Any]],
    manifests: tuple[str, dict[str, int]],
    *,
    agent: bool,
    delay: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """A run in which no scan may be skipped has the same decisions."""
    folder = tmp_path_factory.mktemp("lazy")
    flags = {"scale-down-unneeded-time": "1m", "new-pod-scale-up-delay": f"{delay}s"}
    _write(folder, groups, manifests[0], flags, agent=agent)
    reprieve(folder, *REPLAY, "--run", "lazy")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AutoscalerSession, "_next_scan_ns", lambda _session: None)
        reprieve(folder, *REPLAY, "--run", "all")
    logs = [(folder / run / "decisions.jsonl").read_bytes() for run in ("lazy", "all")]
    assert logs[0] == logs[1]
    ends = [
        orjson.loads((folder / run / "summary.json").read_bytes())["end_ns"]
        for run in ("lazy", "all")
    ]
    assert ends[0] == ends[1]


def _write(
    folder: Path,
    groups: list[dict[str, Any]],
    manifests: str,
    flags: dict[str, Any],
    *,
    agent: bool,
) -> None:
    """Write a cluster with the groups' first nodes, and the groups."""
    nodes = "".join(
        NODE.format(name=f"{group['name']}-{number}", pool=group["name"], cpu=group["cpu"])
        for group in groups
        for number in range(group["first"])
    )
    fixed = NODE.format(name="fixed", pool="none", cpu=1)
    cluster = fixed + nodes + (DAEMON_SET if agent else "") + manifests
    (folder / "c.yaml").write_text(cluster, encoding="utf-8")
    told = [{name: group[name] for name in group.keys() - {"first", "cpu"}} for group in groups]
    (folder / "g.yaml").write_bytes(orjson.dumps({"flags": flags, "groups": told}))


def _within_budgets(evict: Any) -> Any:
    """Return an eviction that fails the test where it exceeds a budget."""

    def checked(
        self: Any, now_ns: int, pod: PodRecord, cause: str, grace_s: int | None = None
    ) -> EvictionRefusal | None:
        cluster = self._cluster
        keys = cluster.covering_budgets.of(pod.message.metadata)
        was_ready = pod.is_ready and not pod.is_terminating
        self._budgets.catch_up(now_ns, pod.uid)
        allowed = [cluster.budgets[key].status.disruptions_allowed for key in keys]
        refusal: EvictionRefusal | None = evict(self, now_ns, pod, cause, grace_s)
        if refusal is None and was_ready:
            assert all(allowed)
        return refusal

    return checked


def _check(
    folder: Path, groups: list[dict[str, Any]], milli: dict[str, int], agent_milli: int
) -> None:
    by_name = {group["name"]: group for group in groups}
    sizes = {name: group["first"] for name, group in by_name.items()}
    targets = dict(sizes)
    nodes: dict[str, set[str]] = defaultdict(set)
    for line in (folder / "run" / "decisions.jsonl").read_bytes().splitlines():
        entry = orjson.loads(line)
        observed = entry["observed"]
        name = observed["object"]["name"]
        if "refused" in entry:
            continue
        if "scaledUp" in observed:
            group = by_name[name]
            targets[name] = observed["scaledUp"]["toSize"]
            assert targets[name] <= group["max"]
            room = 1000 * group["cpu"] - agent_milli
            for pod in observed["scaledUp"]["pods"]:
                wanted = next(cpu for start, cpu in milli.items() if pod["name"].startswith(start))
                assert wanted <= room
        elif "nodeProvisioned" in observed:
            sizes[observed["nodeProvisioned"]["group"]] += 1
        elif observed.get("nodeRemoval", {}).get("step") == "Deleted":
            group_name = observed["nodeRemoval"]["group"]
            sizes[group_name] -= 1
            targets[group_name] -= 1
            assert sizes[group_name] >= by_name[group_name]["min"]
            assert not any(pod.startswith("bare") for pod in nodes[name])
        elif "scheduled" in observed:
            nodes[observed["scheduled"]["nodeName"]].add(name)
        elif "removed" in observed:
            assert not name.startswith("bare")
        assert all(sizes[group] <= by_name[group]["max"] for group in sizes)
    summary = orjson.loads((folder / "run" / "summary.json").read_bytes())
    assert summary["end"] == "finished"
    assert {group["group"]: group["last"] for group in summary["node_groups"]} == sizes
    if not milli:
        assert sizes == {name: group["min"] for name, group in by_name.items()}
