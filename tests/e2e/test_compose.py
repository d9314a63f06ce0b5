"""The services as docker-compose.yml runs them: confined, healthy, and deciding the same.

It uses the Docker engine that answers; deploy/test-engine.sh starts one on a bare machine. Without
one it skips, or fails where REPRIEVE_REQUIRE_ENGINE=1 requests it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

import pytest

from tests.e2e.node_groups import growing
from tests.e2e.services_with_metrics import documented_metrics
from tests.otlp.receiver import installed_receiver, running_receiver
from tests.ports import free_port

pytestmark = pytest.mark.e2e
ROOT = Path(__file__).resolve().parents[2]
TRACE = ROOT / "examples" / "traces" / "nginx-preemption.jsonl"
SERVICES = ("queue", "scheduler", "eviction", "autoscaler")
MIB = 1024 * 1024
MEMORY_MIB = {"queue": 512, "scheduler": 2048, "eviction": 512, "autoscaler": 1024}
PIDS = 256
TLS_FILE = "docker-compose.tls.yml"
FORK = f"""
import os, signal

children = []
try:
    while len(children) < {2 * PIDS}:
        child = os.fork()
        if child == 0:
            signal.pause()
        children.append(child)
except BlockingIOError:
    pass
for child in children:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
print(len(children))
"""
PULL_S, BUILD_S, HEALTHY_S, COMMAND_S = 300, 600, 90, 60
KERNEL_STATS = """
import sys
from services.framework.columns.kernels import Kernel
from services.scheduler.core.session.warm_up import warm_up

warm_up()
kernels = {
    id(value): value.machine_code
    for module in list(sys.modules.values())
    if module.__name__.startswith("services.")
    for value in vars(module).values()
    if isinstance(value, Kernel) and value.machine_code
}.values()
loaded = sum(sum(kernel.stats.cache_hits.values()) for kernel in kernels)
compiled = sum(sum(kernel.stats.cache_misses.values()) for kernel in kernels)
print("some" if loaded else "none", compiled)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """One compose project, and the commands that act on it."""

    compose_command: tuple[str, ...]
    environment: Mapping[str, str]

    def compose(self, *arguments: str, timeout_s: float = COMMAND_S) -> str:
        """Run a compose command; return its output."""
        return run(*self.compose_command, *arguments, env=self.environment, timeout_s=timeout_s)

    def docker(self, *arguments: str) -> str:
        """Run a docker command; return its output."""
        return run("docker", *arguments, env=self.environment)

    def inspect(self, service: str, field: str) -> str:
        """Return a field of a service's container, running or not, such as `.State.Pid`."""
        return self.docker(
            "inspect", "--format", f"{{{{{field}}}}}", self.container(service)
        ).strip()

    def container(self, service: str) -> str:
        """Return the id of a service's container, by the labels that every compose sets."""
        label = "label=com.docker.compose"
        project = f"{label}.project={self.environment['COMPOSE_PROJECT_NAME']}"
        filters = ("--filter", project, "--filter", f"{label}.service={service}")
        return self.docker("ps", "--all", "--quiet", *filters).strip()

    def sh(self, service: str, script: str) -> str:
        """Run a shell script in a service's container; return its output."""
        return self.docker("exec", self.container(service), "sh", "-c", script)

    def address(self, service: str) -> str:
        """Return where this machine reaches a service."""
        return f"127.0.0.1:{self.environment[port_variable(service)]}"

    def wait_until_healthy(self) -> None:
        """Wait until each service's own health check has passed."""
        for service in SERVICES:
            self.wait_for(service, ".State.Health.Status", "healthy")

    def wait_for(self, service: str, field: str, wanted: str) -> None:
        """Wait until a field of a service's container has a value."""
        deadline = time.monotonic() + HEALTHY_S
        while (found := self.inspect(service, field)) != wanted:
            if time.monotonic() > deadline:
                pytest.fail(f"{service}: {field} is {found}\n{self.compose('logs', '--tail=50')}")
            time.sleep(0.5)


def run(
    *command: str, env: Mapping[str, str], timeout_s: float = COMMAND_S, cwd: Path = ROOT
) -> str:
    """Run a command to its end; return its standard output, or fail with all that it said."""
    done = subprocess.run(
        command, env=env, cwd=cwd, check=False, capture_output=True, text=True, timeout=timeout_s
    )
    assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def port_variable(service: str, kind: str = "PORT") -> str:
    """Return the variable by which docker-compose.yml takes a service's published port."""
    return f"REPRIEVE_{service.upper()}_{kind}"


def succeeds(*command: str, env: Mapping[str, str]) -> bool:
    """Return whether a command is there and ends with 0."""
    if shutil.which(command[0]) is None:
        return False
    done = subprocess.run(command, env=env, check=False, capture_output=True, timeout=PULL_S)
    return done.returncode == 0


def missing(reason: str) -> NoReturn:
    """Skip for want of an engine, or fail where one is required."""
    if os.environ.get("REPRIEVE_REQUIRE_ENGINE") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="module")
def engine() -> dict[str, str]:
    """Return an environment in which docker finds an engine and a base image."""
    env = dict(os.environ)
    if not succeeds("docker", "info", env=env):
        missing("no Docker engine answers; on Debian, as root: deploy/test-engine.sh")
    base = env.setdefault("PYTHON_IMAGE", "python:3.12-slim")
    has_base = succeeds("docker", "image", "inspect", base, env=env)
    if not has_base and not succeeds("docker", "pull", "--quiet", base, env=env):
        missing(f"no base image {base}, here or in a registry")
    return env


def compose_command(env: Mapping[str, str]) -> tuple[str, ...]:
    """Return how compose is called: v2 is a plugin of docker, v1 a command."""
    for command in (("docker", "compose"), ("docker-compose",)):
        if succeeds(*command, "version", env=env):
            return command
    missing("neither docker compose nor docker-compose is installed")


@pytest.fixture(scope="module")
def project(engine: dict[str, str]) -> Iterator[Stack]:
    """Build the image, start the services on free ports, and leave nothing behind."""
    name = f"reprieve-test-{os.getpid()}"
    ports = {
        port_variable(service, kind): str(free_port())
        for service in SERVICES
        for kind in ("PORT", "METRICS_PORT")
    }
    env = engine | ports | {"REPRIEVE_TAG": name, "COMPOSE_PROJECT_NAME": name}
    stack = Stack(compose_command=compose_command(env), environment=env)
    try:
        stack.compose("build", timeout_s=BUILD_S)
        stack.compose("up", "--detach", timeout_s=HEALTHY_S)
        yield stack
    finally:
        stack.compose("down", "--volumes", "--remove-orphans", "--rmi", "all", "--timeout", "5")


@pytest.fixture
def stack(project: Stack) -> Stack:
    """Return the services, each healthy, whatever the test before has done to them."""
    project.wait_until_healthy()
    return project


def decisions(run_directory: Path, *options: str, trace: tuple[str, ...] = (str(TRACE),)) -> bytes:
    """Replay the demo trace, or another, from this machine; return its decision log."""
    command = ("-m", "replay.cli", "replay", *trace, "--quiet", "--run")
    env = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'gen'}"}
    run(sys.executable, "-P", *command, str(run_directory), *options, env=env)
    return (run_directory / "decisions.jsonl").read_bytes()


def remote(stack: Stack) -> tuple[str, ...]:
    """Return the options that make a replay use the containers."""
    return ("--scheduler", stack.address("scheduler"), "--eviction", stack.address("eviction"))


def test_a_replay_through_the_published_ports_decides_as_embedded_services_do(
    stack: Stack, tmp_path: Path
) -> None:
    """Where a service runs changes no byte of the decision log."""
    embedded = decisions(tmp_path / "embedded")
    assert b"preempt" in embedded
    assert decisions(tmp_path / "containers", *remote(stack)) == embedded


def test_node_groups_grow_and_shrink_through_the_published_port(
    stack: Stack, tmp_path: Path
) -> None:
    """The autoscaler's decisions are the same, too."""
    trace = growing(tmp_path)
    embedded = decisions(tmp_path / "embedded", trace=trace)
    assert b"scaledUp" in embedded
    address = ("--autoscaler-service", stack.address("autoscaler"))
    assert decisions(tmp_path / "containers", *remote(stack), *address, trace=trace) == embedded


def test_the_image_brings_every_kernel_compiled(stack: Stack, tmp_path: Path) -> None:
    """Neither a warm-up in the container nor the scheduler's own, nor a replay, compiles one."""
    assert stack.sh("scheduler", f"python -c '{KERNEL_STATS}'") == "some 0\n"
    decisions(tmp_path / "run", *remote(stack))
    stack.sh("scheduler", 'diff -r /opt/reprieve/kernels "$NUMBA_CACHE_DIR"')


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_is_not_root_and_has_no_capability(stack: Stack, service: str) -> None:
    """Process 1 is the service itself; what it may not do, no child of its may."""
    status = dict(
        line.split(":\t", 1) for line in stack.sh(service, "cat /proc/1/status").splitlines()
    )
    assert set(status["Uid"].split() + status["Gid"].split()) == {"65532"}
    capabilities = {key: int(value, 16) for key, value in status.items() if key.startswith("Cap")}
    assert set(capabilities.values()) == {0}
    assert status["NoNewPrivs"] == "1"


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_can_write_nowhere_but_in_tmp(stack: Stack, service: str) -> None:
    """The root file system is read-only, not only forbidden to the user."""
    stack.sh(service, "touch /tmp/probe && rm /tmp/probe")
    root = [line.split() for line in stack.sh(service, "cat /proc/1/mounts").splitlines()]
    options = next(fields[3] for fields in root if fields[1] == "/")
    assert "ro" in options.split(",")


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_is_published_on_loopback_only(stack: Stack, service: str) -> None:
    """Nobody on the network reaches a service that knows no user."""
    hosts = stack.inspect(
        service, "range .NetworkSettings.Ports}}{{range .}}{{println .HostIp}}{{end}}{{end"
    )
    assert set(hosts.split()) == {"127.0.0.1"}


def test_the_services_serve_their_metrics(stack: Stack, tmp_path: Path) -> None:
    """Those that are documented, and no others; what a replay decided is in the counters."""
    decisions(tmp_path / "run", *remote(stack))
    ports = {
        service: stack.environment[port_variable(service, "METRICS_PORT")] for service in SERVICES
    }
    found = {}
    for service, port in ports.items():
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as response:
            found[service] = response.read().decode()
    names = {
        service: set(re.findall(r"^# TYPE (\w+)", found[service], re.MULTILINE))
        for service in SERVICES
    }
    for service, expected in documented_metrics().items():
        assert {name for name in names[service] if not name.startswith("process_")} == expected
    assert 'scheduler_schedule_attempts_total{profile="default-scheduler"' in found["scheduler"]
    assert "scheduler_queue_incoming_pods_total{" in found["queue"]
    assert all("grpc_server_handled_total{" in text for text in found.values())


def test_the_services_send_their_spans_and_logs_where_compose_says(
    stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To a real receiver on this machine, and the replay does, too: all of it is one run's."""
    network = f"{stack.environment['COMPOSE_PROJECT_NAME']}_default"
    field = "{{(index .IPAM.Config 0).Gateway}}"
    host = stack.docker("network", "inspect", "--format", field, network).strip()
    again = ("up", "--detach", "--no-deps", *SERVICES)  # at once: a scheduler waits for its queue
    program = installed_receiver(tmp_path)
    with ExitStack() as ends:
        try:
            receiver = ends.enter_context(running_receiver(program, tmp_path, host))
        except ConnectionError as error:
            missing(f"{host}, the containers' gateway, is not an address of this machine: {error}")
        endpoint = {"REPRIEVE_OTLP_ENDPOINT": receiver.endpoints["grpc"]}
        sending = replace(stack, environment={**stack.environment, **endpoint})
        for name, value in receiver.environment("grpc").items():
            monkeypatch.setenv(name, value)
        try:
            sending.compose(*again, timeout_s=HEALTHY_S)
            sending.wait_until_healthy()
            decisions(tmp_path / "run", *remote(sending), "--span-clock", "wall")
        finally:
            stack.compose(*again, timeout_s=HEALTHY_S)  # all that was to be sent has arrived
        spans, logs = receiver.spans(), receiver.logs()
    (run,) = [span for span in spans if span.name == "replay"]
    of_run = {span.service for span in spans if span.trace_id == run.trace_id}
    deciding = set(SERVICES) - {"autoscaler"}
    assert of_run == {"reprieve", *(f"reprieve-{service}" for service in deciding)}
    (ending,) = [span for span in spans if span.name == "Terminating"]
    (preemptor,) = [
        span for span in spans if span.trace_id == ending.trace_id and not span.parent_id
    ]
    assert preemptor.attributes["k8s.pod.name"] == "nginx-a"
    logged = {name for name, record in logs if record.get("traceId") == run.trace_id}
    assert logged == of_run - {"reprieve"}


@pytest.mark.parametrize("service", SERVICES)
def test_the_engine_limits_memory_cpu_processes_and_logs(stack: Stack, service: str) -> None:
    """Without swap: the limit of memory is one of memory and swap together."""
    names = ("Memory", "MemorySwap", "NanoCpus", "PidsLimit")
    fields = " ".join(f"{{{{.HostConfig.{name}}}}}" for name in names)
    found = stack.docker("inspect", "--format", fields, stack.container(service)).split()
    memory = MEMORY_MIB[service] * MIB
    assert [int(number) for number in found] == [memory, memory, 1_000_000_000, PIDS]
    assert "max-size:10m" in stack.inspect(service, ".HostConfig.LogConfig.Config")


def test_what_takes_more_memory_than_its_service_may_is_killed(stack: Stack) -> None:
    """The kernel enforces what the engine shows; the service itself continues."""
    restarts = stack.inspect("queue", ".RestartCount")
    take = f"python -c 'print(len(bytes({MEMORY_MIB['queue'] * MIB}) + b\"x\"))' || echo $?"
    assert stack.sh("queue", take).split()[-1] == "137"
    assert stack.inspect("queue", ".RestartCount") == restarts


def test_a_service_can_not_start_processes_without_end(stack: Stack) -> None:
    """Its own threads and those of its health check count, too."""
    assert 0 < int(stack.sh("queue", f"python -c '{FORK}'")) < PIDS


def test_over_tls_a_replay_decides_the_same_and_a_stranger_nothing(
    stack: Stack, tmp_path: Path
) -> None:
    """With the certificates of deploy/tls/make-certificates.sh, renewed while the services run."""
    make = (str(ROOT / "deploy" / "tls" / "make-certificates.sh"), str(tmp_path / "tls"))
    run(*make, env=stack.environment)
    group = {"REPRIEVE_TLS_GROUP": str(os.getgid())} if os.getuid() else {}
    tls = replace(
        stack,
        compose_command=(*stack.compose_command, "-f", "docker-compose.yml", "-f", TLS_FILE),
        environment={**stack.environment, **group, "REPRIEVE_CERTIFICATES": make[1]},
    )
    access = ("--access", str(tmp_path / "tls" / "replay" / "access.yaml"))
    try:
        tls.compose("up", "--detach", timeout_s=HEALTHY_S)
        tls.wait_until_healthy()
        embedded = decisions(tmp_path / "embedded")
        assert decisions(tmp_path / "before", *remote(tls), *access) == embedded
        run(*make, env=stack.environment)
        assert decisions(tmp_path / "renewed", *remote(tls), *access) == embedded
        with pytest.raises(AssertionError, match="Error: "):
            decisions(tmp_path / "plain", *remote(tls))
        assert "--insecure" not in "".join(
            tls.inspect(service, ".Config.Cmd") for service in SERVICES
        )
    finally:
        stack.compose("up", "--detach", timeout_s=HEALTHY_S)


def test_a_crashed_scheduler_comes_back_and_decides_the_same(stack: Stack, tmp_path: Path) -> None:
    """A crash is SIGKILL from outside: `docker kill` counts as a stop, which nothing restarts."""
    before = decisions(tmp_path / "before", *remote(stack))
    pid = stack.inspect("scheduler", ".State.Pid")
    outside = ("--pid", "host", "--network", "none", "--user", "0", "--entrypoint", "sh")
    image = stack.inspect("scheduler", ".Image")
    stack.docker("run", "--rm", *outside, image, "-c", f"kill -KILL {pid}")
    stack.wait_for("scheduler", ".RestartCount", "1")
    stack.wait_until_healthy()
    assert decisions(tmp_path / "after", *remote(stack)) == before


def test_a_stop_ends_every_service_with_0(stack: Stack) -> None:
    """SIGTERM drains a service, and it ends before compose loses patience."""
    try:
        stack.compose("stop")
        assert {stack.inspect(service, ".State.ExitCode") for service in SERVICES} == {"0"}
    finally:
        stack.compose("start")
