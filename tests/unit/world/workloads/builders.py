"""Controllers for the tests, and a cluster in which every pod that is made finds its node."""

from __future__ import annotations

from replay.world.api.pod_record import PodRecord
from replay.world.timeline import Action, ActionKind
from reprieve.kube.v1beta1 import workloads_pb2
from tests.unit.world.builders import World


def make_stateful_set(
    name: str = "db", replicas: int = 2, *, policy: str = "", image: str = ""
) -> workloads_pb2.StatefulSet:
    """Return a StatefulSet; its UID is "uid-<name>"."""
    made = workloads_pb2.StatefulSet()
    _named(made, name)
    made.spec.replicas = replicas
    made.spec.pod_management_policy = policy
    _templated(made.spec.template, name, image)
    return made


def make_daemon_set(name: str = "agent", *, image: str = "") -> workloads_pb2.DaemonSet:
    """Return a DaemonSet; its UID is "uid-<name>"."""
    made = workloads_pb2.DaemonSet()
    _named(made, name)
    _templated(made.spec.template, name, image)
    return made


def make_job(
    name: str = "work", *, completions: int | None = None, parallelism: int | None = None
) -> workloads_pb2.Job:
    """Return a Job whose pods are never restarted in place; its UID is "uid-<name>"."""
    made = workloads_pb2.Job()
    _named(made, name)
    if completions is not None:
        made.spec.completions = completions
    if parallelism is not None:
        made.spec.parallelism = parallelism
    _templated(made.spec.template, name, "")
    made.spec.template.spec.restart_policy = "Never"
    return made


def make_cron_job(name: str = "tick", schedule: str = "* * * * *") -> workloads_pb2.CronJob:
    """Return a CronJob; its UID is "uid-<name>"."""
    made = workloads_pb2.CronJob()
    _named(made, name)
    made.spec.schedule = schedule
    made.spec.job_template.spec.CopyFrom(make_job(name).spec)
    return made


_Made = (
    workloads_pb2.StatefulSet | workloads_pb2.DaemonSet | workloads_pb2.Job | workloads_pb2.CronJob
)


def _named(made: _Made, name: str) -> None:
    made.metadata.name, made.metadata.namespace = name, "default"
    made.metadata.uid = f"uid-{name}"


def _templated(template: workloads_pb2.PodTemplateSpec, name: str, image: str) -> None:
    template.metadata.labels["app"] = name
    template.spec.containers.add(name="c", image=image)


def place(world: World, now_ns: int, node: str = "n") -> None:
    """Bind all pending pods to a node, or to the one that they are pinned to, and let them run."""
    for pod in list(world.cluster.pending.values()):
        terms = pod.message.spec.affinity.node_affinity
        required = terms.required_during_scheduling_ignored_during_execution
        pinned = [term.match_fields[0].values[0] for term in required.node_selector_terms]
        world.cluster.bind(now_ns, pod, pinned[0] if pinned else node)
        world.lifecycle.bound(now_ns, pod)
    world.run_until(now_ns)


def end(world: World, now_ns: int, name: str, *, failed: bool = False) -> None:
    """Let a pod's containers exit by themselves."""
    pod = world.pod(name)
    pod.life.fails = failed
    world.act(now_ns, Action(ActionKind.FINISH, pod.uid))
    world.settle(now_ns)


def phases(world: World) -> dict[str, str]:
    """Return each pod's phase by name."""
    return {pod.message.metadata.name: shown(pod) for pod in world.cluster.pods.values()}


def shown(pod: PodRecord) -> str:
    """Return a pod's phase, or that it terminates."""
    return "Terminating" if pod.is_terminating else pod.message.status.phase
