"""Plays scripts of the kubelet's eviction manager against a running EvictionService.

A script's steps become messages, the results are compared with upstream's recorded ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TypeVar

import grpc

from replay.conform.vectors.vectors import Json
from reprieve.eviction.v1beta1 import eviction_pb2 as ev
from reprieve.eviction.v1beta1 import eviction_service_pb2 as pb
from reprieve.eviction.v1beta1.eviction_service_pb2_grpc import EvictionServiceStub
from reprieve.kube.v1beta1 import meta_pb2, pod_pb2, volume_pb2
from reprieve.session.v1beta1 import session_pb2
from services.kube.time import SECOND_NS

DEADLINE_S = 20
RANKED_MAX = 10
"""The number of pods of a ranking that a result has."""


class EvictionSession:
    """One session, by unary calls."""

    def __init__(self, channel: grpc.Channel, config: ev.EvictionConfig | None = None) -> None:
        self.stub = EvictionServiceStub(channel)
        request = pb.CreateSessionRequest(config=config)
        self.opened = self.stub.CreateSession(request, timeout=DEADLINE_S)
        self.session, self.sequence = self.opened.session_id, 0

    def read(self) -> session_pb2.Stamp:
        """Return the stamp of a read."""
        return session_pb2.Stamp(session_id=self.session)

    def stamp(self) -> session_pb2.Stamp:
        """Return the next request's stamp."""
        self.sequence += 1
        return session_pb2.Stamp(session_id=self.session, sequence=self.sequence)

    def apply(self, operation: pb.Operation) -> pb.OperationResult:
        """Apply an operation that has a result, as a separate batch."""
        request = pb.ApplyRequest(stamp=self.stamp(), operations=[operation])
        answer = self.stub.Apply(request, timeout=DEADLINE_S)
        if answer.sequence != self.sequence:
            raise ValueError(
                f"the response is to request {answer.sequence}, not to {self.sequence}"
            )
        if answer.applied != 1 or len(answer.results) != 1:
            raise ValueError(f"{len(answer.results)} results, {answer.applied} applied, of one")
        result: pb.OperationResult = answer.results[0]
        return result

    def admit(self, node_name: str, plain: Json) -> Json:
        """Return the admission of a scripted pod in the vectors' shape."""
        pod = pod_message(plain)
        admit = pb.Admit(node_name=node_name, pod=pod)
        admission = self.apply(pb.Operation(admit=admit)).admission
        return {
            "pod": pod.metadata.uid,
            "admit": admission.admit,
            "reason": admission.reason,
            "message": admission.message,
        }

    def take(self, node: ScriptedNode, plain: Json) -> Json:
        """Play one step of a script."""
        result = self.apply(pb.Operation(step=node.step(plain)))
        if result.HasField("need_reclaim"):
            resume = node.resume(plain, result.need_reclaim)
            result = self.apply(pb.Operation(resume=resume))
        admitted = [self.admit(node.name, pod) for pod in plain.get("admit") or []]
        return {**node.seen(result.step, plain), "admit": admitted}

    def close(self) -> None:
        """Delete the session."""
        request = session_pb2.DeleteSessionRequest(session_id=self.session)
        self.stub.DeleteSession(request, timeout=DEADLINE_S)


def eviction_difference(channel: grpc.Channel, rules: str, script: Json) -> str:
    """Return a service's first difference from a recorded script, "" if none."""
    refusal = str(script.get("config_error", ""))
    try:
        session = EvictionSession(channel, config_message(script["config"], rules))
    except grpc.RpcError as error:
        text = str(error.details()) if isinstance(error, grpc.Call) else str(error)
        return "" if refusal and text.endswith(refusal) else f"the configuration is refused: {text}"
    try:
        if refusal:
            return f"the configuration is accepted, expected: {refusal}"
        seen = sorted(threshold.text for threshold in session.opened.thresholds)
        if seen != sorted(script["thresholds"]):
            return f"thresholds {seen}, expected {sorted(script['thresholds'])}"
        take = partial(session.take, ScriptedNode("node"))
        return next(script_differences(script, take, ranked_max=RANKED_MAX), "")
    finally:
        session.close()


MS = 1_000_000
_DISK_INFO_FAILED = "failed to get HasDedicatedImageFs: "
_Observed = TypeVar("_Observed", ev.MemoryStats, ev.FsStats, ev.ProcessStats)
_OBSERVED: Mapping[type, Mapping[str, str]] = {
    ev.MemoryStats: {"available_bytes": "available", "working_set_bytes": "working_set"},
    ev.FsStats: {
        "available_bytes": "available",
        "capacity_bytes": "capacity",
        "inodes_free": "inodes_free",
        "inodes": "inodes",
    },
    ev.ProcessStats: {"max_pid": "maxpid", "running": "procs"},
}
"""Fields of observations, with their names in the vectors."""
_SOURCES = {
    "hostPath": "host_path",
    "configMap": "config_map",
    "secret": "secret",
    "pvc": "persistent_volume_claim",
}
CONDITIONS = ("MemoryPressure", "DiskPressure", "PIDPressure")


def pod_key(pod: Json) -> str:
    """Return a scripted pod's key, which serves as its UID."""
    return f"{pod.get('ns', 'default')}/{pod['name']}"


class ScriptedPods:
    """The pods that a script's node lists, by key, in its order."""

    def __init__(self) -> None:
        self.plain: dict[str, Json] = {}

    def change(self, step: Json) -> None:
        """Apply a step's changes of the pods."""
        if "set_pods" in step:
            self.plain = {pod_key(pod): pod for pod in step["set_pods"]}
        for key in step.get("remove_pods") or []:
            self.plain.pop(key, None)
        for pod in step.get("add_pods") or []:
            self.plain[pod_key(pod)] = pod
        for key, stats in (step.get("pod_stats") or {}).items():
            if key in self.plain:
                self.plain[key] = {**self.plain[key], "stats": stats}


def script_differences(
    script: Json, take: Callable[[Json], Json], *, ranked_max: int | None = None
) -> Iterator[str]:
    """Yield the first difference that playing the script's steps with `take` shows, if any.

    `ranked_max` is the number of ranked pods that a result has; None: all.
    """
    steps = zip(script["script"], script["expected"], strict=True)
    for number, (step, recorded) in enumerate(steps):
        difference = step_difference(take(step), recorded, ranked_max=ranked_max)
        if difference:
            yield f"{script['id']} step {number}: {difference}"
            return


def step_difference(seen: Json, recorded: Json, *, ranked_max: int | None = None) -> str:
    """Return how `seen` differs from `recorded`, "" for no difference.

    Upstream iterates over maps, so `any_of` has every outcome that it may have.
    """
    expected = {"error": "", "admit": [], "kill_failures": [], "condition_messages": [], **recorded}
    for key, value in seen.items():
        if key == "any_of":
            options = [
                {**outcome, "pod_order": outcome["pod_order"][:ranked_max]}
                for outcome in expected["any_of"]
            ]
            if value not in options:
                return f"{value}\n  none of {options}"
        elif key == "error" and _kubelets_part(value) == _kubelets_part(expected[key]):
            continue
        elif value != expected[key]:
            return f"{key} {value}, expected {expected[key]}"
    return ""


def _kubelets_part(error: str) -> str:
    """Return a step's error without the text of its provider of disk information.

    The contract has the fact that the provider failed, not its text.
    """
    text, mark, _ = error.partition(_DISK_INFO_FAILED)
    return text + mark


def config_message(plain: Json, rules: str) -> ev.EvictionConfig:
    """Return a script's configuration."""
    return ev.EvictionConfig(
        rules=rules,
        hard=plain.get("hard"),
        soft=plain.get("soft"),
        soft_grace=plain.get("soft_grace"),
        minimum_reclaim=plain.get("min_reclaim"),
        enforce_node_allocatable=plain.get("enforce_node_allocatable"),
        pressure_transition_duration_ns=plain["pressure_transition_ms"] * MS,
        max_pod_grace_period_duration_ns=plain["max_pod_grace_s"] * SECOND_NS,
        dedicated_image_fs=plain["dedicated_imagefs"],
        split_container_fs=plain["split_containerfs"],
        local_storage_isolation=plain["local_storage_isolation"],
        allow_overwrite_termination_grace=plain["allow_overwrite_tgps"],
    )


class ScriptedNode:
    """A node of a script: makes the requests of each step and reads the results."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._pods = ScriptedPods()
        self._sent: dict[str, Json] = {}
        self._collected: list[str] = []
        self._under: set[str] = set()

    def step(self, plain: Json) -> pb.Step:
        """Return the step's message, with UIDs only if no pod has changed since the last step."""
        self._pods.change(plain)
        specs = {
            key: {name: value for name, value in pod.items() if name != "stats"}
            for key, pod in self._pods.plain.items()
        }
        is_known = all(self._sent.get(key) == spec for key, spec in specs.items())
        self._sent, self._collected = specs, []
        failed = bool(plain.get("summary_error"))
        return pb.Step(
            node_name=self.name,
            time_ns=plain["at_ms"] * MS,
            observations=None if failed else self._observations(plain["stats"], plain["at_ms"]),
            pods=[] if is_known else map(pod_message, specs.values()),
            active_uids=specs if is_known else [],
            summary_failed=failed,
            disk_info_failed=bool(plain.get("disk_info_error")),
            kill_fails=bool(plain.get("kill_error")),
        )

    def resume(self, plain: Json, need: ev.NeedReclaim) -> pb.Resume:
        """Return the node's observations after the garbage collection that `need` requires."""
        self._collected = [name for name in ("containers", "images") if getattr(need, name)]
        after = plain.get("stats_after_reclaim") or plain["stats"]
        observations = self._observations(after, plain["at_ms"])
        return pb.Resume(node_name=self.name, observations=observations)

    def seen(self, result: ev.StepResult, plain: Json) -> Json:
        """Return a step's result in the vectors' shape, without admissions.

        A quiet step leaves the conditions out, which have not changed.
        """
        fails = bool(plain.get("kill_error"))
        if not result.quiet:
            self._under = {
                condition.type for condition in result.conditions if condition.status == "True"
            }
        return {
            "kill_failures": [
                eviction.pod.uid for eviction in result.evictions if eviction.kill_failed != fails
            ],
            "condition_messages": [
                eviction.condition.message
                for eviction in result.evictions
                if eviction.HasField("condition") and eviction.condition.message != eviction.message
            ],
            "error": result.error,
            "conditions": sorted(self._under),
            "under": [condition in self._under for condition in CONDITIONS],
            "thresholds_met": sorted(threshold.text for threshold in result.thresholds_met),
            "first_observed_ms": _times_ms(result.first_observed),
            "condition_last_observed_ms": _times_ms(result.condition_last_observed),
            "any_of": {
                "evicted": [eviction.pod.uid for eviction in result.evictions],
                "kills": [_kill(eviction) for eviction in result.evictions],
                "gc": self._collected,
                "node_events": [
                    f"{event.type}|{event.reason}|{event.message}" for event in result.node_events
                ],
                "pod_order": [ranked.pod.uid for ranked in result.ranking]
                or list(self._pods.plain)[:10],
            },
        }

    def _observations(self, stats: Json, at_ms: int) -> ev.Observations:
        return ev.Observations(
            memory=_observed(ev.MemoryStats, stats.get("memory"), at_ms),
            allocatable_memory=_observed(ev.MemoryStats, stats.get("allocatable_memory"), at_ms),
            node_fs=_observed(ev.FsStats, stats.get("nodefs"), at_ms),
            image_fs=_observed(ev.FsStats, stats.get("imagefs"), at_ms),
            container_fs=_observed(ev.FsStats, stats.get("containerfs"), at_ms),
            processes=_observed(ev.ProcessStats, stats.get("rlimit"), at_ms),
            pods=[
                _pod_stats(key, pod["stats"])
                for key, pod in self._pods.plain.items()
                if pod.get("stats")
            ],
        )


def pod_message(plain: Json) -> pod_pb2.Pod:
    """Return a scripted pod as a Kubernetes object."""
    pod = pod_pb2.Pod()
    meta, spec = pod.metadata, pod.spec
    meta.uid, meta.namespace, meta.name = pod_key(plain), plain.get("ns", "default"), plain["name"]
    meta.annotations.update(plain.get("annotations") or {})
    if "priority" in plain:
        spec.priority = plain["priority"]
    if plain.get("termination_grace_s") is not None:
        spec.termination_grace_period_seconds = plain["termination_grace_s"]
    spec.overhead.update(plain.get("overhead") or {})
    spec.containers.extend(map(_container, plain.get("containers") or []))
    spec.init_containers.extend(map(_container, plain.get("init_containers") or []))
    spec.volumes.extend(map(_volume, plain.get("volumes") or []))
    spec.tolerations.extend(
        pod_pb2.Toleration(**toleration) for toleration in plain.get("tolerations") or []
    )
    return pod


def _container(plain: Json) -> pod_pb2.Container:
    resources = pod_pb2.ResourceRequirements(
        requests=plain.get("requests"), limits=plain.get("limits")
    )
    return pod_pb2.Container(name=plain["name"], resources=resources)


def _volume(plain: Json) -> volume_pb2.Volume:
    volume = volume_pb2.Volume(name=plain["name"])
    if plain["kind"] in {"emptyDir", "emptyDirMemory"}:
        volume.empty_dir.medium = "Memory" if plain["kind"] == "emptyDirMemory" else ""
        if plain.get("size_limit"):
            volume.empty_dir.size_limit = plain["size_limit"]
    elif plain["kind"] in _SOURCES:
        getattr(volume, _SOURCES[plain["kind"]]).SetInParent()
    return volume


def _pod_stats(key: str, plain: Json) -> ev.PodStats:
    return ev.PodStats(
        pod=meta_pb2.ObjectReference(uid=key),
        memory_working_set_bytes=plain.get("memory_ws"),
        containers=[_container_stats(container) for container in plain.get("containers") or []],
        volumes=[
            ev.UsageStats(
                name=volume["name"],
                used_bytes=volume.get("used"),
                inodes_used=volume.get("inodes_used"),
            )
            for volume in plain.get("volumes") or []
        ],
        ephemeral_used_bytes=plain.get("ephemeral_used"),
        processes=plain.get("processes"),
    )


def _container_stats(plain: Json) -> ev.UsageStats:
    rootfs, logs = plain.get("rootfs") or {}, plain.get("logs") or {}
    return ev.UsageStats(
        name=plain["name"],
        memory_working_set_bytes=plain.get("memory_ws"),
        used_bytes=rootfs.get("used"),
        inodes_used=rootfs.get("inodes_used"),
        logs_used_bytes=logs.get("used"),
        logs_inodes_used=logs.get("inodes_used"),
    )


def _observed(kind: type[_Observed], plain: Json | None, at_ms: int) -> _Observed | None:
    """Return the observation of memory, a file system or processes, None if none."""
    if plain is None:
        return None
    time_ns = None if plain.get("no_time") else int(plain.get("time_ms", at_ms)) * MS
    fields = {name: plain.get(recorded) for name, recorded in _OBSERVED[kind].items()}
    return kind(time_ns=time_ns, **fields)


def _times_ms(times: Iterable[ev.SignalTime]) -> dict[str, int]:
    return {time.name: time.time_ns // MS for time in times}


def _kill(eviction: ev.Eviction) -> Json:
    kill: Json = {
        "pod": eviction.pod.uid,
        "grace_period_override": eviction.grace_period_override_duration_ns // SECOND_NS,
        "message": eviction.message,
        "reason": eviction.reason,
        "phase": eviction.phase,
    }
    if eviction.HasField("condition"):
        condition = eviction.condition
        kill["condition"] = f"{condition.type}={condition.status}:{condition.reason}"
        kill["annotations"] = dict(eviction.annotations)
    return kill
