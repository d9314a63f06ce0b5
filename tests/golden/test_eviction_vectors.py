"""The eviction manager against what upstream's own code did, script by script."""

from __future__ import annotations

from collections.abc import Iterator

import orjson
import pytest

from replay.conform.vectors.eviction import MS, ScriptedPods, pod_key, script_differences
from replay.conform.vectors.vectors import Json
from services.eviction.core.manager import Manager
from services.eviction.core.observations import (
    ContainerUsage,
    FsStats,
    FsUsage,
    MemoryStats,
    NodeSummary,
    PodUsage,
    RlimitStats,
    VolumeUsage,
)
from services.eviction.core.pod import EvictionContainer, EvictionPod, EvictionVolume, qos_class
from services.eviction.core.results import (
    EVICTED_PHASE,
    EVICTED_REASON,
    Eviction,
    NeedReclaim,
    NodeEvent,
    StepResult,
)
from services.eviction.core.signals import ConditionType
from services.eviction.core.state import ManagerSnapshot
from services.eviction.core.thresholds import ConfigError
from services.kube.kubelet import EvictionConfig, Mode
from services.kube.quantity import Quantity, parse
from services.kube.taints import TaintEffect, Toleration
from services.typed import Reading, write
from tests.eviction_scripts import scripts


@pytest.mark.parametrize("mode", list(Mode))
def test_every_script_decides_as_upstream_does(mode: Mode) -> None:
    """Each step's state, admissions and decision equal the recorded ones."""
    checked, failures = 0, []
    for vector in scripts(mode.value):
        checked += 1
        failures += list(_differences(vector, mode))
    assert not failures, f"{len(failures)} of {checked} scripts:\n" + "\n".join(failures[:5])
    assert checked > 200


@pytest.mark.parametrize("mode", list(Mode))
def test_every_script_survives_a_checkpoint_after_each_operation(mode: Mode) -> None:
    """A manager restored from JSON between any two operations decides no differently."""
    failures = [
        difference
        for vector in scripts(mode.value)
        for difference in _differences(vector, mode, restoring=True)
    ]
    assert not failures, "\n".join(failures[:5])


def _differences(vector: Json, mode: Mode, *, restoring: bool = False) -> Iterator[str]:
    """Yield the first difference of each kind that a script shows."""
    try:
        node = _Node(_config(vector["config"], mode), restoring=restoring)
    except ConfigError as error:
        if str(error) != vector.get("config_error"):
            yield f"{vector['id']}: refused with {error}"
        return
    if "config_error" in vector:
        yield f"{vector['id']}: accepted, expected {vector['config_error']}"
        return
    if sorted(str(threshold) for threshold in node.manager.thresholds) != sorted(
        vector["thresholds"]
    ):
        yield f"{vector['id']}: parsed {[str(threshold) for threshold in node.manager.thresholds]}"
    yield from script_differences(vector, node.take)


class _Node:
    """A node that plays a script: it keeps the pods and carries collections out."""

    def __init__(self, config: EvictionConfig, *, restoring: bool) -> None:
        self.manager = Manager(config)
        self._config = config
        self._restoring = restoring
        self._pods = ScriptedPods()

    def take(self, step: Json) -> Json:
        """Play one step and return what the vectors record of it."""
        self._pods.change(step)
        pods = [_pod(key, item) for key, item in self._pods.plain.items()]
        assert all(
            qos_class(pod).value == plain["qos"]
            for pod, plain in zip(pods, self._pods.plain.values(), strict=True)
            if "qos" in plain
        )
        failed = step.get("summary_error")
        result = self.manager.synchronize(
            now_ns=step["at_ms"] * MS,
            summary=None if failed else self._summary(step["stats"], step["at_ms"]),
            pods=pods,
            disk_info_error=str(step.get("disk_info_error") or ""),
        )
        self._checkpoint()
        if isinstance(result, NeedReclaim):
            after = step.get("stats_after_reclaim") or step["stats"]
            result = self.manager.resume(self._summary(after, step["at_ms"]))
            self._checkpoint()
        return {**_seen(result, list(self._pods.plain)), "admit": self._admissions(step)}

    def _checkpoint(self) -> None:
        if self._restoring:
            plain = orjson.loads(write(self.manager.snapshot()))
            self.manager = Manager(self._config)
            self.manager.restore(Reading().read(ManagerSnapshot, plain))

    def _admissions(self, step: Json) -> list[Json]:
        decided = []
        for plain in step.get("admit") or []:
            pod = _pod(pod_key(plain), plain)
            admission = self.manager.admit(pod)
            decided.append(
                {
                    "pod": pod.uid,
                    "admit": admission.admit,
                    "reason": admission.reason,
                    "message": admission.message,
                }
            )
        return decided

    def _summary(self, stats: Json, at_ms: int) -> NodeSummary:
        usage = {
            key: _usage(pod["stats"]) for key, pod in self._pods.plain.items() if pod.get("stats")
        }
        return NodeSummary(
            memory=_memory(stats.get("memory"), at_ms),
            allocatable_memory=_memory(stats.get("allocatable_memory"), at_ms),
            nodefs=_fs(stats.get("nodefs"), at_ms),
            imagefs=_fs(stats.get("imagefs"), at_ms),
            containerfs=_fs(stats.get("containerfs"), at_ms),
            rlimit=_rlimit(stats.get("rlimit"), at_ms),
            pods=usage,
        )


def _seen(result: StepResult, listed: list[str]) -> Json:
    return {
        "error": result.error,
        "conditions": [condition.value for condition in result.conditions_held],
        "under": [condition in result.conditions_held for condition in ConditionType],
        "thresholds_met": sorted(str(threshold) for threshold in result.thresholds_met),
        "first_observed_ms": {
            str(item): at_ns // MS for item, at_ns in result.first_observed_ns.items()
        },
        "condition_last_observed_ms": {
            item.value: at_ns // MS for item, at_ns in result.condition_last_observed_ns.items()
        },
        "any_of": {
            "evicted": [eviction.uid for eviction in result.evictions],
            "kills": [_kill(eviction) for eviction in result.evictions],
            "gc": [name for name in ("containers", "images") if getattr(result.collected, name)],
            "node_events": [_event(event) for event in result.events],
            "pod_order": [pod.uid for pod in result.ranking] or listed,
        },
    }


def _kill(eviction: Eviction) -> Json:
    kill: Json = {
        "pod": eviction.uid,
        "grace_period_override": eviction.grace_period_s,
        "message": eviction.message,
        "reason": EVICTED_REASON,
        "phase": EVICTED_PHASE,
    }
    if eviction.condition is not None:
        condition = eviction.condition
        assert condition.message == eviction.message
        kill["condition"] = f"{condition.type}={condition.status}:{condition.reason}"
        kill["annotations"] = dict(eviction.annotations)
    return kill


def _event(event: NodeEvent) -> str:
    return f"{event.type}|{event.reason}|{event.message}"


def _config(plain: Json, mode: Mode) -> EvictionConfig:
    return EvictionConfig(
        mode=mode,
        hard=plain.get("hard") or {},
        soft=plain.get("soft") or {},
        soft_grace=plain.get("soft_grace") or {},
        min_reclaim=plain.get("min_reclaim") or {},
        enforce_node_allocatable=tuple(plain.get("enforce_node_allocatable") or ()),
        pressure_transition_ns=plain["pressure_transition_ms"] * MS,
        max_pod_grace_s=plain["max_pod_grace_s"],
        dedicated_imagefs=plain["dedicated_imagefs"],
        split_containerfs=plain["split_containerfs"],
        local_storage_isolation=plain["local_storage_isolation"],
        allow_overwrite_tgps=plain["allow_overwrite_tgps"],
    )


def _pod(key: str, plain: Json) -> EvictionPod:
    return EvictionPod(
        uid=key,
        namespace=plain.get("ns", "default"),
        name=plain["name"],
        priority=plain.get("priority", 0),
        containers=_containers(plain.get("containers")),
        init_containers=_containers(plain.get("init_containers")),
        overhead=_quantities(plain.get("overhead")),
        volumes=tuple(_volume(volume) for volume in plain.get("volumes") or []),
        annotations=plain.get("annotations") or {},
        termination_grace_s=plain.get("termination_grace_s"),
        tolerations=tuple(_toleration(toleration) for toleration in plain.get("tolerations") or []),
    )


def _containers(plain: list[Json] | None) -> tuple[EvictionContainer, ...]:
    return tuple(
        EvictionContainer(
            name=container["name"],
            requests=_quantities(container.get("requests")),
            limits=_quantities(container.get("limits")),
        )
        for container in plain or []
    )


def _quantities(plain: dict[str, str] | None) -> dict[str, Quantity]:
    return {name: parse(text) for name, text in (plain or {}).items()}


def _volume(plain: Json) -> EvictionVolume:
    in_memory = plain["kind"] == "emptyDirMemory"
    return EvictionVolume(
        name=plain["name"],
        kind="emptyDir" if in_memory else plain["kind"],
        medium="Memory" if in_memory else "",
        size_limit=parse(plain["size_limit"]) if plain.get("size_limit") else None,
    )


def _toleration(plain: Json) -> Toleration:
    effect = plain.get("effect")
    return Toleration(
        key=plain.get("key", ""),
        operator=plain.get("operator", ""),
        value=plain.get("value", ""),
        effect=TaintEffect(effect) if effect else None,
    )


def _usage(plain: Json) -> PodUsage:
    return PodUsage(
        memory_working_set_bytes=plain.get("memory_ws"),
        containers=tuple(
            ContainerUsage(
                name=container["name"],
                memory_working_set_bytes=container.get("memory_ws"),
                rootfs=_fs_usage(container.get("rootfs")),
                logs=_fs_usage(container.get("logs")),
            )
            for container in plain.get("containers") or []
        ),
        volumes=tuple(
            VolumeUsage(
                name=volume["name"],
                usage=FsUsage(used_bytes=volume.get("used"), inodes_used=volume.get("inodes_used")),
            )
            for volume in plain.get("volumes") or []
        ),
        ephemeral_storage_bytes=plain.get("ephemeral_used"),
        processes=plain.get("processes"),
    )


def _fs_usage(plain: Json | None) -> FsUsage | None:
    if plain is None:
        return None
    return FsUsage(used_bytes=plain.get("used"), inodes_used=plain.get("inodes_used"))


def _time_ns(plain: Json, at_ms: int) -> int | None:
    return None if plain.get("no_time") else int(plain.get("time_ms", at_ms)) * MS


def _memory(plain: Json | None, at_ms: int) -> MemoryStats | None:
    if plain is None:
        return None
    return MemoryStats(
        available_bytes=plain.get("available"),
        working_set_bytes=plain.get("working_set"),
        time_ns=_time_ns(plain, at_ms),
    )


def _fs(plain: Json | None, at_ms: int) -> FsStats | None:
    if plain is None:
        return None
    return FsStats(
        available_bytes=plain.get("available"),
        capacity_bytes=plain.get("capacity"),
        inodes_free=plain.get("inodes_free"),
        inodes=plain.get("inodes"),
        time_ns=_time_ns(plain, at_ms),
    )


def _rlimit(plain: Json | None, at_ms: int) -> RlimitStats | None:
    if plain is None:
        return None
    return RlimitStats(
        max_pid=plain.get("maxpid"),
        running_processes=plain.get("procs"),
        time_ns=_time_ns(plain, at_ms),
    )
