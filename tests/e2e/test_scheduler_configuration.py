"""A KubeSchedulerConfiguration file on its way: the command line, the service, the replay."""

from __future__ import annotations

import json
from pathlib import Path

import grpc
import pytest
import yaml
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from replay.backends.processes import EmbeddedServices
from reprieve.scheduler.v1beta1 import scheduler_pb2, scheduler_service_pb2_grpc
from reprieve.scheduler.v1beta1 import scheduler_service_pb2 as service_pb2
from reprieve.session.v1beta1 import session_pb2
from tests.builders import make_node, make_pod
from tests.e2e.commands import REFUSED, reprieve

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
PACKED = (
    HEAD
    + """\
profiles:
- schedulerName: default-scheduler
- schedulerName: packed
  pluginConfig:
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 1}]}}
  plugins: {score: {disabled: [{name: NodeResourcesBalancedAllocation}]}}
"""
)


def node(name: str, cpu: str) -> str:
    """Return a node's manifest."""
    made = make_node(name).capacity(cpu=cpu, memory="9Gi", pods=9)
    return f"---\n{yaml.safe_dump(made.json())}"


def pod(name: str, scheduler: str) -> str:
    """Return a pod's manifest."""
    made = make_pod(name).scheduler(scheduler).req(cpu="1", memory="1Gi")
    return f"---\n{yaml.safe_dump(made.json())}"


MANIFESTS = "".join(
    [
        node("big", "9"),
        node("small", "3"),
        pod("spread", "default-scheduler"),
        pod("pack", "packed"),
        pod("foreign", "nobody"),
    ]
)

pytestmark = pytest.mark.e2e


def test_each_profile_of_a_file_schedules_its_own_pods(tmp_path: Path) -> None:
    """One spreads and one packs; a pod of neither is left alone."""
    (tmp_path / "cluster.yaml").write_text(MANIFESTS, encoding="utf-8")
    (tmp_path / "scheduler.yaml").write_text(PACKED, encoding="utf-8")
    reprieve(
        tmp_path,
        "replay",
        "cluster.yaml",
        "--scheduler-config",
        "scheduler.yaml",
        "--sample-nodes",
        "--run",
        "run",
        "--in-process",
        "-q",
    )
    pods = json.loads(reprieve(tmp_path, "get", "pods", "run", "-o", "json").stdout)
    placed = {item["metadata"]["name"]: item["spec"].get("nodeName", "") for item in pods["items"]}
    assert placed == {"spread": "big", "pack": "small", "foreign": ""}
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["configuration"]["kube_scheduler_configuration"] == PACKED
    assert manifest["configuration"]["sample_nodes"] is True


def test_a_file_that_is_refused_ends_the_replay_with_its_path(tmp_path: Path) -> None:
    """Before anything is replayed."""
    (tmp_path / "cluster.yaml").write_text(MANIFESTS, encoding="utf-8")
    text = HEAD + "profiles: [{plugins: {score: {enabled: [{name: Nobody}]}}}]\n"
    (tmp_path / "scheduler.yaml").write_text(text, encoding="utf-8")
    arguments = ("cluster.yaml", "--scheduler-config", "scheduler.yaml", "--in-process", "-q")
    done = reprieve(tmp_path, "replay", *arguments, code=REFUSED)
    assert "profiles[0].plugins.score.enabled[0].name" in done.stderr


def session_with(services: EmbeddedServices, text: str) -> service_pb2.Session:
    """Create a session with a file, and delete it."""
    with grpc.insecure_channel(services.addresses["scheduler"]) as channel:
        stub = scheduler_service_pb2_grpc.SchedulerServiceStub(channel)
        config = scheduler_pb2.SchedulerConfig(kube_scheduler_configuration=text)
        made = stub.CreateSession(service_pb2.CreateSessionRequest(config=config), timeout=10)
        stub.DeleteSession(session_pb2.DeleteSessionRequest(session_id=made.session_id), timeout=10)
        return made


def test_a_session_has_profiles_backoff_and_what_has_no_effect(services: EmbeddedServices) -> None:
    """The queue takes the file's backoff."""
    made = session_with(
        services, PACKED + "podInitialBackoffSeconds: 3\npodMaxBackoffSeconds: 30\nparallelism: 2\n"
    )
    assert list(made.scheduler_names) == ["default-scheduler", "packed"]
    queue = made.config.queue
    assert (queue.initial_backoff_duration_ns, queue.max_backoff_duration_ns) == (
        3 * 10**9,
        30 * 10**9,
    )
    assert list(made.warnings) == ["parallelism has no effect here."]


def test_a_field_that_is_refused_is_named(services: EmbeddedServices) -> None:
    """INVALID_ARGUMENT, with the path in the file behind the message's own."""
    with pytest.raises(grpc.RpcError) as caught:
        session_with(services, HEAD + "profiles: [{}, {}]\n")
    status = rpc_status.from_call(caught.value)  # type: ignore[arg-type] # it is a Call as well
    assert status is not None
    bad = error_details_pb2.BadRequest()
    for detail in status.details:
        detail.Unpack(bad)
    (violation,) = bad.field_violations
    path = "config.kube_scheduler_configuration.profiles[0].schedulerName"
    assert violation.field == path


def test_ties_by_name_are_kept_and_explained(tmp_path: Path) -> None:
    """The manifest has them, and telling the run again leads to the same node."""
    names = ("n3", "n10", "n2")
    manifests = "".join([*(node(name, "9") for name in names), pod("p", "default-scheduler")])
    (tmp_path / "cluster.yaml").write_text(manifests, encoding="utf-8")
    for seed in range(3):
        asked = ("--ties", "name", "--seed", str(seed), "--run", "run", "--force", "-q")
        quick = ("--in-process", "--spans", "off", "--no-report")
        reprieve(tmp_path, "replay", "cluster.yaml", *asked, *quick)
        shown = reprieve(tmp_path, "get", "pods", "run", "-o", "json")
        assert json.loads(shown.stdout)["items"][0]["spec"]["nodeName"] == "n10"
        manifest = json.loads((tmp_path / "run" / "manifest.json").read_text(encoding="utf-8"))
        assert manifest["configuration"]["ties"] == "TIE_BREAK_NAME"
    explained = reprieve(tmp_path, "explain", "p", "run").stdout
    assert "scheduled to n10 (one of 3 with the best score, chosen by tie-break)" in explained
    refused = reprieve(tmp_path, "replay", "cluster.yaml", "--ties", "age", code=REFUSED)
    assert "'age' is not one of 'hash', 'name'" in refused.stderr


def test_a_service_refuses_ties_that_it_does_not_know(services: EmbeddedServices) -> None:
    """By the field's name, with those that it knows."""
    config = scheduler_pb2.SchedulerConfig(ties=9)  # type: ignore[arg-type] # none that there is
    with grpc.insecure_channel(services.addresses["scheduler"]) as channel:
        stub = scheduler_service_pb2_grpc.SchedulerServiceStub(channel)
        with pytest.raises(grpc.RpcError) as caught:
            stub.CreateSession(service_pb2.CreateSessionRequest(config=config), timeout=10)
    assert "config.ties: 9 is not a tie-break: use TIE_BREAK_HASH or TIE_BREAK_NAME" in str(
        caught.value
    )
