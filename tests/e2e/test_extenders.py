"""Extenders in a replay: a web service by upstream's protocol, and one in JavaScript over gRPC."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
import trustme
from grpc_health.v1 import health_pb2, health_pb2_grpc

from replay.backends.processes import EmbeddedServices, ServiceProcess, Starter
from tests.e2e.commands import reprieve
from tests.e2e.replays import ROOT
from tests.e2e.test_cli import addresses  # noqa: F401 - a fixture
from tests.e2e.test_scheduler_configuration import HEAD, node, pod
from tests.e2e.test_scheduler_service import Caller, add_node, add_pod
from tests.e2e.test_scheduler_service import pod as pod_message
from tests.extenders import Json, webhook

EXAMPLE = ROOT / "examples" / "extender-node"
CLUSTER = "".join(
    [node("a", "4"), node("b", "4"), *(pod(f"p{i}", "default-scheduler") for i in range(6))]
)
SERVING = health_pb2.HealthCheckResponse.SERVING

pytestmark = pytest.mark.e2e


def extender(url: str, fields: str) -> str:
    """Return a configuration file with one extender."""
    return f"{HEAD}extenders: [{{urlPrefix: '{url}', {fields}}}]\n"


def replayed(folder: Path, addresses: list[str], *more: str) -> dict[str, dict[str, Any]]:  # noqa: F811 - the fixture's value
    """Replay cluster.yaml under scheduler.yaml; return the pods by name."""
    arguments = ("cluster.yaml", "--scheduler-config", "scheduler.yaml", "--run", "run", "-q")
    reprieve(folder, "replay", *arguments, "--spans", "off", *addresses, *more)
    items = json.loads(reprieve(folder, "get", "pods", "run", "-o", "json").stdout)["items"]
    return {item["metadata"]["name"]: item for item in items}


def nodes_of(pods: dict[str, dict[str, Any]]) -> dict[str, str]:
    """Return each pod's node, "" if none."""
    return {name: item["spec"].get("nodeName", "") for name, item in pods.items()}


def even_to_a(args: Json) -> Json:
    """Let pods of even names pass on a alone, the others on b alone."""
    node_name = "a" if int(args["Pod"]["metadata"]["name"][1:]) % 2 == 0 else "b"
    others = [name for name in args["NodeNames"] if name != node_name]
    return {"NodeNames": [node_name], "FailedNodes": dict.fromkeys(others, "not its turn")}


def test_a_webhook_decides_whatever_the_batch(tmp_path: Path, addresses: list[str]) -> None:  # noqa: F811 - a fixture
    """Filter, scores and binding over HTTP; one pod an exchange or many give the same log."""
    (tmp_path / "cluster.yaml").write_text(CLUSTER, encoding="utf-8")
    logs: list[bytes] = []
    fields = "filterVerb: filter, prioritizeVerb: score, weight: 1, nodeCacheCapable: true"
    for size in ("1", "1000"):
        with webhook(filter=even_to_a, score=lambda _: []) as hook:
            text = extender(hook.url, fields)
            (tmp_path / "scheduler.yaml").write_text(text, encoding="utf-8")
            pods = replayed(tmp_path, addresses, "--batch-size", size, "--force")
            assert hook.asked("filter")
        logs.append((tmp_path / "run" / "decisions.jsonl").read_bytes())
    assert nodes_of(pods) == {f"p{i}": "ab"[i % 2] for i in range(6)}
    assert logs[0] == logs[1]


def test_a_run_is_explained_without_asking_its_extender_again(
    tmp_path: Path,
    addresses: list[str],  # noqa: F811 - a fixture
) -> None:
    """What it answered stands in the run; by then it is gone."""
    (tmp_path / "cluster.yaml").write_text(CLUSTER, encoding="utf-8")
    fields = "filterVerb: filter, prioritizeVerb: score, weight: 1, nodeCacheCapable: true"
    with webhook(filter=even_to_a, score=lambda _: []) as hook:
        text = extender(hook.url, fields)
        (tmp_path / "scheduler.yaml").write_text(text, encoding="utf-8")
        replayed(tmp_path, addresses)
    for name, wanted in (("p3", "b"), ("p4", "a")):
        output = reprieve(tmp_path, "explain", name, "run", *addresses[:2], "-o", "json").stdout
        assert json.loads(output)["node"] == wanted
        assert "not its turn" in output


def test_an_extenders_failure_is_replayed_too(tmp_path: Path, addresses: list[str]) -> None:  # noqa: F811 - a fixture
    """In its own words, which stand in the run."""
    (tmp_path / "cluster.yaml").write_text(CLUSTER, encoding="utf-8")
    with webhook(filter=lambda _: {"Error": "out of sorts"}) as hook:
        text = extender(hook.url, "filterVerb: filter, nodeCacheCapable: true")
        (tmp_path / "scheduler.yaml").write_text(text, encoding="utf-8")
        replayed(tmp_path, addresses, "--until", "1m")
    assert "out of sorts" in reprieve(tmp_path, "explain", "p1", "run", *addresses[:2]).stdout


def test_a_binding_webhook_is_called_once_per_pod(tmp_path: Path, addresses: list[str]) -> None:  # noqa: F811 - a fixture
    """Nothing that it has bound is taken back."""
    (tmp_path / "cluster.yaml").write_text(CLUSTER, encoding="utf-8")
    with webhook(bind=lambda _: {}) as hook:
        text = extender(hook.url, "bindVerb: bind")
        (tmp_path / "scheduler.yaml").write_text(text, encoding="utf-8")
        pods = replayed(tmp_path, addresses)
        bound = {args["PodName"]: args["Node"] for args in hook.asked("bind")}
        assert len(hook.asked("bind")) == len(bound)
    assert bound == nodes_of(pods)


def test_a_slow_or_lying_webhook_ends_no_session(tmp_path: Path, addresses: list[str]) -> None:  # noqa: F811 - a fixture
    """Its failures are in the pods' status, or in the summary where they are passed over."""
    (tmp_path / "cluster.yaml").write_text(CLUSTER, encoding="utf-8")

    def slow(_args: Json) -> Json:
        time.sleep(0.2)
        return {}

    with webhook(filter=lambda _: {"NodeNames": ["ghost"]}, score=slow) as hook:
        text = extender(hook.url, "filterVerb: filter, nodeCacheCapable: true")
        (tmp_path / "scheduler.yaml").write_text(text, encoding="utf-8")
        pods = replayed(tmp_path, addresses, "--until", "1m")
        assert set(nodes_of(pods).values()) == {""}
        conditions = pods["p0"]["status"]["conditions"]
        assert "claims a filtered node 'ghost'" in conditions[0]["message"]
        scores = extender(hook.url, "prioritizeVerb: score, weight: 1, httpTimeout: 50ms")
        (tmp_path / "scheduler.yaml").write_text(scores, encoding="utf-8")
        pods = replayed(tmp_path, addresses, "--force")
    assert "" not in nodes_of(pods).values()
    summary = (tmp_path / "run" / "summary.json").read_text(encoding="utf-8")
    assert "score: no answer within 0.05 s" in summary


def test_health_checks_are_answered_while_an_extender_hangs(services: EmbeddedServices) -> None:
    """So are readers of the session, once the decision is made."""
    go = threading.Event()

    def slow(_args: Json) -> Json:
        go.wait()
        return {"NodeNames": ["a"]}

    with webhook(filter=slow) as hook, ThreadPoolExecutor(1) as pool:
        text = extender(hook.url, "filterVerb: filter, nodeCacheCapable: true, httpTimeout: 90s")
        address = services.addresses["scheduler"]
        caller = Caller(address, kube_scheduler_configuration=text)
        events = (add_node("a", "4"), add_pod(pod_message("p", "1")))
        round_ = pool.submit(caller.tell, 1, *events)
        while not hook.calls:
            time.sleep(0.01)
        with grpc.insecure_channel(address) as channel:
            check = health_pb2_grpc.HealthStub(channel).Check
            assert check(health_pb2.HealthCheckRequest(), timeout=60).status == SERVING
        assert not round_.done()
        go.set()
        assert [assumed.node_name for assumed in caller.state().assumed] == ["a"]
        assert [outcome.bind.node_name for outcome in round_.result()] == ["a"]
        caller.channel.close()


def test_a_service_calls_the_extenders_that_its_operator_lists(services: EmbeddedServices) -> None:
    """Others are refused with their path in the file; files without extenders are accepted."""
    queue, url = services.addresses["queue"], "http://127.0.0.1:1"
    starter = Starter()
    scheduler = ServiceProcess(starter, "scheduler", "--queue", queue, "--extender", url)
    try:
        address = scheduler.wait_listening()
        for text in (HEAD, extender(url, "filterVerb: filter")):
            Caller(address, kube_scheduler_configuration=text).channel.close()
        text = extender("http://127.0.0.1:2", "filterVerb: filter")
        refused = (
            r"kube_scheduler_configuration\.extenders\[0\]\.urlPrefix: .*--extender URL_PREFIX"
        )
        with pytest.raises(grpc.RpcError, match=refused):
            Caller(address, kube_scheduler_configuration=text)
    finally:
        scheduler.stop()
        starter.wait()


@pytest.mark.parametrize("own", [[], ["--in-process"]])
def test_a_replay_lists_the_extenders_of_its_configuration_at_its_own_scheduler(
    own: list[str], tmp_path: Path
) -> None:
    """With the files of their TLS settings, which are read from the user's folder."""
    (tmp_path / "cluster.yaml").write_text(CLUSTER, encoding="utf-8")
    trustme.CA().cert_pem.write_to_path(tmp_path / "ca.pem")
    fields = "filterVerb: filter, nodeCacheCapable: true, tlsConfig: {caFile: ca.pem}"
    with webhook(filter=even_to_a) as hook:
        text = extender(hook.url, fields)
        (tmp_path / "scheduler.yaml").write_text(text, encoding="utf-8")
        pods = replayed(tmp_path, own)
    assert nodes_of(pods) == {f"p{i}": "ab"[i % 2] for i in range(6)}


def test_explaining_a_run_reads_no_file_that_the_run_names(tmp_path: Path) -> None:
    """A run's extenders are not called, so that their TLS settings are not looked at."""
    (tmp_path / "cluster.yaml").write_text(CLUSTER, encoding="utf-8")
    trustme.CA().cert_pem.write_to_path(tmp_path / "ca.pem")
    fields = "filterVerb: filter, nodeCacheCapable: true, tlsConfig: {caFile: ca.pem}"
    with webhook(filter=even_to_a) as hook:
        text = extender(hook.url, fields)
        (tmp_path / "scheduler.yaml").write_text(text, encoding="utf-8")
        replayed(tmp_path, ["--in-process"])
    (tmp_path / "ca.pem").unlink()
    output = reprieve(tmp_path, "explain", "p3", "run", "-o", "json").stdout
    assert json.loads(output)["node"] == "b"


@pytest.fixture(scope="module")
def javascript(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Install the example, start it and return its address."""
    if not (shutil.which("node") and shutil.which("npm")):
        pytest.skip("the example needs node and npm")
    folder = tmp_path_factory.mktemp("extender") / "example"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("node_modules"))
    quiet = ("--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries=0")
    try:
        installed = subprocess.run(
            ["npm", "ci", *quiet],  # noqa: S607 - whichever npm there is
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
    except subprocess.TimeoutExpired:
        pytest.skip("npm ci took longer than 60 s")
    if installed.returncode:
        pytest.skip(f"npm ci failed: {installed.stderr.strip()[-200:]}")
    process = subprocess.Popen(
        ["node", "extender.js", "127.0.0.1:0"],  # noqa: S607 - whichever node there is
        cwd=folder,
        env=os.environ | {"PROTOS": str(ROOT / "protos")},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().split()[-1]
    finally:
        process.terminate()
        process.wait(10)


def test_an_extender_in_javascript_takes_part(
    tmp_path: Path,
    addresses: list[str],  # noqa: F811 - a fixture
    javascript: str,
) -> None:
    """It filters, scores and spares victims, by the example's own files."""
    text = (EXAMPLE / "scheduler.yaml").read_text(encoding="utf-8")
    text = text.replace("127.0.0.1:50071", javascript)
    (tmp_path / "scheduler.yaml").write_text(text, encoding="utf-8")
    shutil.copy(EXAMPLE / "cluster.yaml", tmp_path)
    pods = replayed(tmp_path, addresses)
    placed = nodes_of(pods)
    assert (placed["shop"], placed["batch"], placed["late"]) == ("reserved", "free", "")
    message = pods["late"]["status"]["conditions"][0]["message"]
    refusal = "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) are reserved for shop."
    assert message.startswith(refusal)
    assert placed["urgent"] == ""
    assert "no candidate node" in pods["urgent"]["status"]["conditions"][0]["message"]
