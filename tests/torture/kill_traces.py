"""Replays of every kind for tests/torture/kills.py: traces, importers, options; by a seed.

Each replay takes some seconds without kills, for most of a run to lie after its start.
"""

from __future__ import annotations

import contextlib
import random
import shlex
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from click.testing import CliRunner

from replay.cli.main import command
from replay.trace.writer import write
from tests.busy_cluster import everything_under_way
from tests.device_workload import workload
from tests.extenders import Json, webhook

ROOT = Path(__file__).resolve().parents[2]
_EXAMPLES = ROOT / "examples"
_OPTIONS = (
    "",
    "--rules v1.16 --spans 10%",
    "--rules v1.36 --batch-size 7 --spans off",
    "--model cycle-cost=1ms --model bind-cost=5ms --ties name",
    "--no-eviction --queue-rules v1.20",
    "--seed 9 --sample-nodes --span-clock wall",
    "--disable-preemption --model start-delay=2s --model service-time=1m",
    "--batch-size 1 --spans off --assert 'pods >= 0'",
)
_WHAT_IF = (
    "--set priorityClass.batch.value=200000 --scale-nodes 0.8",
    "--set podMaxBackoffSeconds=60 --drop-nodes topology.kubernetes.io/zone=zone-1",
    "--arrivals cpu=1.2 --until 10m",
    "--usage 'tier=batch memory +50Mi/m' --set evictionHard.memory.available=500Mi",
    "--scale-nodes +5 --set plugin.NodeResourcesFit.weight=5",
)
_NODE = """
apiVersion: v1
kind: Node
metadata: {{name: node-{0:02}, labels: {{kubernetes.io/hostname: node-{0:02}, zone: z{1}}}}}
status: {{allocatable: {{cpu: "8", memory: 16Gi, pods: "60", ephemeral-storage: 50Gi}}}}
---"""
_WORKLOAD = """
apiVersion: apps/v1
kind: {kind}
metadata: {{name: {name}, namespace: ns}}
spec:
  {replicas}
  selector: {{matchLabels: {{app: {name}}}}}
  template:
    metadata: {{labels: {{app: {name}}}}}
    spec:
      priorityClassName: {priority}
      containers: [{{name: c, image: i, resources: {{requests: {{cpu: {cpu}m, memory: 64Mi}}}}}}]
---"""
_JOB = """spec:
  parallelism: {parallelism}
  completions: {completions}
  template:
    spec:
      restartPolicy: Never
      containers: [{{name: c, image: i, resources: {{requests: {{cpu: 200m}}}}}}]
"""
_HEAD = """apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
extenders: [{urlPrefix: '%s', filterVerb: filter, prioritizeVerb: prioritize, weight: 2,
  httpTimeout: 300s, nodeCacheCapable: true}]
"""


@contextlib.contextmanager
def replay_of(seed: int, folder: Path) -> Iterator[list[str]]:
    """Yield the arguments of a replay, with the files that it needs in `folder`.

    Consecutive seeds have different kinds of traces. The services are child processes, but for two
    kinds.
    """
    chance = random.Random(seed)  # noqa: S311 - a test's choices
    kind = _KINDS[seed % len(_KINDS)]
    arguments = kind(chance, folder)
    if "--in-process" not in arguments:
        arguments.append("--no-in-process")
    options = shlex.split(chance.choice(_OPTIONS))
    if kind is _with_extender:
        with webhook(filter=_not_threes, prioritize=_by_name) as server:
            path = folder / "scheduler.yaml"
            path.write_text(_HEAD % server.url, encoding="utf-8")
            yield [*arguments, "--scheduler-config", str(path)]
        return
    own = {argument for argument in arguments if argument.startswith("--")}
    clash = own & {*options} or ("--no-eviction" in options and "--usage" in own)
    yield [*arguments, *([] if clash else options)]


def kind_of(seed: int) -> str:
    """Return the name of the kind of trace that a seed has."""
    return _KINDS[seed % len(_KINDS)].__name__.strip("_")


def kinds() -> list[str]:
    """Return the names of all kinds."""
    return [kind_of(seed) for seed in range(len(_KINDS))]


def generated(folder: Path, **options: int | str) -> list[str]:
    """Write a trace with these options of `reprieve generate`; return the replay's arguments."""
    path = folder / "trace.ktr"
    texts = [
        text
        for name, value in options.items()
        for text in (f"--{name.replace('_', '-')}", str(value))
    ]
    done = CliRunner().invoke(command, ["generate", "-o", str(path), *texts])
    assert done.exit_code == 0, done.output
    return [str(path)]


def _tiers(chance: random.Random, folder: Path) -> list[str]:
    nodes = chance.choice((10, 40, 80))
    return generated(
        folder,
        seed=chance.randrange(1000),
        nodes=nodes,
        pods=10 * nodes + 200,
        deployments=chance.choice((0, 5, 30)),
        budgets=chance.choice((0, 4, 40)),
        leaky=chance.choice((0, 10)),
        service_time=chance.choice(("60s", "120s")),
        window=chance.choice(("5m", "10m")),
    )


def _pressed(chance: random.Random, folder: Path) -> list[str]:
    """Return few pods that leak, so that nodes are under pressure again and again."""
    seed = chance.randrange(1000)
    return [
        *generated(folder, seed=seed, nodes=6, pods=80, deployments=4, budgets=8, leaky=50),
        "--until",
        "12m",
    ]


def _bundled(chance: random.Random, folder: Path) -> list[str]:
    del folder
    name = chance.choice(("four-tiers.ktr", "eviction-loop.jsonl"))
    return [str(_EXAMPLES / "traces" / name)]


def _recorded(chance: random.Random, folder: Path) -> list[str]:
    del folder
    path = str(_EXAMPLES / "recordings" / "shop")
    return [path, *chance.choice(([], ["--follow-until", "15s"], ["--budget-status", "recorded"]))]


def _manifests(chance: random.Random, folder: Path) -> list[str]:
    """Return a cluster with every controller, whose CronJobs run for hours."""
    text = "".join(_NODE.format(number, number % 3) for number in range(chance.choice((5, 15))))
    for name, value in (("high", 1000), ("low", 10)):
        text += (
            f"\napiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {{name: {name}}}\n"
            f"value: {value}\n---"
        )
    for index, kind in enumerate(("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet") * 2):
        text += _WORKLOAD.format(
            kind=kind,
            name=f"{kind.lower()}-{index}",
            replicas="" if kind == "DaemonSet" else f"replicas: {chance.randrange(1, 30)}",
            priority=chance.choice(("high", "low")),
            cpu=chance.randrange(100, 900, 100),
        )
    job = _JOB.format(parallelism=5, completions=40)
    text += f"\napiVersion: batch/v1\nkind: Job\nmetadata: {{name: job, namespace: ns}}\n{job}---"
    inner = _JOB.format(parallelism=3, completions=6).replace("\n", "\n    ").rstrip()
    for index in range(4):
        text += (
            "\napiVersion: batch/v1\nkind: CronJob"
            f"\nmetadata: {{name: cron-{index}, namespace: ns}}"
            f"\nspec:\n  schedule: '*/{index + 1} * * * *'\n  jobTemplate:\n    {inner}\n---"
        )
    path = folder / "cluster.yaml"
    path.write_text(text, encoding="utf-8")
    return [str(path), "--until", "3h", "--model", "service-time=40s"]


def _what_if(chance: random.Random, folder: Path) -> list[str]:
    return [*_tiers(chance, folder), *shlex.split(chance.choice(_WHAT_IF))]


def _openb(chance: random.Random, folder: Path) -> list[str]:
    """Return tables of OpenB, with GPUs, in their own times."""
    nodes = "sn,cpu_milli,memory_mib,gpu,model\n" + "".join(
        f"n{number},32000,131072,{4 * (number % 2)},{'P100' if number % 2 else ''}\n"
        for number in range(30)
    )
    pods = (
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,"
        "deletion_time,scheduled_time\n"
    )
    for index in range(700):
        at, gpus = 2 * index, chance.choice((0, 0, 1))
        pods += (
            f"p{index:04},{chance.choice((2000, 8000))},{chance.choice((4096, 16384))},{gpus},"
            f"{1000 * gpus},,{chance.choice(('LS', 'BE', 'Burstable'))},Running,{at},"
            f"{at + chance.randrange(60, 400)},{at}\n"
        )
    (folder / "nodes.csv").write_text(nodes, encoding="utf-8")
    (folder / "pods.csv").write_text(pods, encoding="utf-8")
    return [str(folder / "nodes.csv"), str(folder / "pods.csv"), "--openb-timed"]


def _in_process(chance: random.Random, folder: Path) -> list[str]:
    return [*_tiers(chance, folder), "--in-process"]


def _everything_in_process(chance: random.Random, folder: Path) -> list[str]:
    return [*everything_under_way(chance, folder), "--in-process"]


def _with_extender(chance: random.Random, folder: Path) -> list[str]:
    return generated(
        folder, seed=chance.randrange(1000), nodes=10, pods=150, leaky=0, service_time="60s"
    )


def with_devices(chance: random.Random, folder: Path) -> list[str]:
    """Return pods with claims for devices, more than there are."""
    path = folder / "devices.jsonl"
    write(path, workload(folder, chance.randrange(1000), nodes=12, pods=300))
    return [str(path)]


def scaled_groups() -> str:
    """Return a file of node groups for generated nodes, which come and go within minutes."""
    flags = (
        "scale-down-unneeded-time: 1m, scale-down-delay-after-add: 1m, "
        "unremovable-node-recheck-timeout: 1m, max-drain-parallelism: 3"
    )
    zones = "topology.kubernetes.io/zone"
    return f"""
flags: {{{flags}}}
groups:
- name: a
  min: 1
  max: 12
  nodes: {{labels: {{{zones}: zone-1}}}}
  price: 0.5
  provisioningDelay: 40s
  template:
    metadata: {{labels: {{{zones}: zone-1}}}}
    status: {{capacity: {{cpu: "8", memory: 32Gi, pods: "40"}}}}
- name: b
  min: 0
  max: 6
  nodes: {{labels: {{{zones}: zone-2}}}}
  template:
    metadata: {{labels: {{{zones}: zone-2}}}}
    status: {{capacity: {{cpu: "16", memory: 64Gi, pods: "110"}}}}
"""


def _scaled(chance: random.Random, folder: Path) -> list[str]:
    """Return few nodes for many pods, with an autoscaler some of whose nodes cannot be made."""
    path = folder / "groups.yaml"
    path.write_text(scaled_groups(), encoding="utf-8")
    trace = generated(
        folder,
        seed=chance.randrange(1000),
        nodes=6,
        pods=300,
        deployments=5,
        budgets=4,
        service_time="90s",
        window="8m",
    )
    failures = ["--model", "node-failures=20%"]
    return [*trace, "--autoscaler", str(path), "--until", "18m", *failures]


_KINDS: Sequence[Callable[[random.Random, Path], list[str]]] = (
    _tiers,
    _manifests,
    _what_if,
    _pressed,
    _with_extender,
    _recorded,
    _openb,
    _in_process,
    _bundled,
    everything_under_way,
    _everything_in_process,
    _scaled,
    with_devices,
)
KINDS = len(_KINDS)
"""The number of kinds; as many consecutive seeds have each of them."""


def _not_threes(args: Json) -> Json:
    """Refuse the nodes whose names end in 3."""
    refused = [name for name in args["NodeNames"] if name.endswith("3")]
    kept = [name for name in args["NodeNames"] if not name.endswith("3")]
    return {"NodeNames": kept, "FailedNodes": dict.fromkeys(refused, "refused here")}


def _by_name(args: Json) -> Json:
    return [{"Host": name, "Score": int(name[-1]) % 10} for name in args["NodeNames"]]
