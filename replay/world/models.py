"""The models: what a replay assumes where a trace has no value.

Each has a name, a default, a source, and a notation for its value or for switching it off. A
recorded value always takes precedence over a model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum

from replay.durations import duration_ns, shown
from services.kube.time import SECOND_NS

OFF = "off"
_DIGITS_MAX = 9
_UNTIL_DELETED = "until the pod is deleted"


class OomKill(IntEnum):
    """The extent of an OOM kill at a memory limit: nothing, one process, or a container.

    KUBELET: what the kubelets' settings say, a container without them.
    """

    OFF = 0
    PROCESS = 1
    CONTAINER = 2
    KUBELET = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Models:
    """The assumptions of a replay, in ns unless the name says otherwise.

    start_delay_ns: from bound to Running. 0: images are on the node and containers start at once.
    ready_delay_ns: from Running to Ready. 0: containers are ready once they run.
    image_pull_ns: the time to pull an image that the node does not have, added to the start delay.
    service_time_ns: how long a pod runs whose restartPolicy is OnFailure or Never. None: until it
        is deleted.
    shutdown_ns: from the request to stop to the end of a pod's containers, at most the grace
        period. None: the whole grace period, as for a container that ignores SIGTERM.
    stateful_max_unavailable: whether a StatefulSet's rolling update reads maxUnavailable, which it
        does in any case where the trace is of Kubernetes v1.35 or later.
    eviction: whether node-pressure eviction is simulated.
    oom_kill: what the kernel kills where memory exceeds a limit.
    recorded_budget_status: use the recorded status of PodDisruptionBudgets in place of the
        disruption controller's.
    budget_delay_ns: from a change of a pod to the status of its PodDisruptionBudgets.
    preemption_delay_ns: from the decision to preempt to the deletion of the victims.
    device_ready_delay_ns: from the allocation of devices with binding conditions to their drivers'
        reports that the conditions are true. 0: no binding waits for them.
    node_grace_ns: from a node's last report until it counts as unreachable.
    toleration_s: how long a pod without tolerations of its own stays on a node that is not ready or
        unreachable, s. None: the taint manager evicts no pods.
    provisioning_delay_ns: from the request for a node to the node that is ready, where its group
        has no delay of its own.
    node_failures_percent: of the nodes that are requested, which cannot be made.
    cycle_cost_ns: the duration of a scheduling cycle; cycles run one after the other.
    bind_cost_ns: the duration of a binding; bindings run besides the cycles.
    pod_gc_ns: how long the pods of a deleted node exist. 0: they are removed with it.
    ended_pods_max: how many pods that have ended a cluster keeps. 0: all of them.
    """

    start_delay_ns: int = 0
    ready_delay_ns: int = 0
    image_pull_ns: int = 0
    service_time_ns: int | None = None
    shutdown_ns: int | None = None
    stateful_max_unavailable: bool = False
    eviction: bool = True
    oom_kill: OomKill = OomKill.KUBELET
    recorded_budget_status: bool = False
    budget_delay_ns: int = 0
    preemption_delay_ns: int = 0
    node_grace_ns: int = 50 * SECOND_NS
    toleration_s: int | None = 300
    pod_gc_ns: int = 60 * SECOND_NS
    ended_pods_max: int = 12_500
    provisioning_delay_ns: int = 90 * SECOND_NS
    node_failures_percent: int = 0
    cycle_cost_ns: int = 0
    bind_cost_ns: int = 0
    device_ready_delay_ns: int = 0


DEFAULT_GRACE_S = 30
"""terminationGracePeriodSeconds of a pod that does not set it.

Source: kubernetes v1.34 pkg/apis/core/v1/defaults.go, SetDefaults_PodSpec.
"""


class ModelError(ValueError):
    """An unknown model or a bad value; the text is for users."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model; `off` is its field's value when it is switched off, `when_off` what that means.

    `read` parses a text as its field's value (ValueError with a text for users), `show` is the
    reverse.
    """

    name: str
    field: str
    meaning: str
    source: str
    off: int | bool | None
    when_off: str
    read: Callable[[str], int | bool]
    show: Callable[[int], str]

    def shown(self, models: Models) -> str:
        """Return the model's value as `read` takes it, or OFF."""
        value = getattr(models, self.field)
        return OFF if value == self.off else self.show(value)


def _seconds(text: str) -> int:
    length_ns = duration_ns(text)
    if length_ns % SECOND_NS:
        raise ValueError(f"{text!r} is not a whole number of seconds")
    return length_ns // SECOND_NS


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > _DIGITS_MAX or int(text) < 1:
        raise ValueError(f"{text!r} is not a number from 1 to {'9' * _DIGITS_MAX}")
    return int(text)


def _percent(text: str) -> int:
    number = text.removesuffix("%")
    if number == text or not (number.isascii() and number.isdigit() and int(number) <= 100):
        raise ValueError(f"{text!r} is not a percentage from 1% to 100%")
    return int(number)


def _on(text: str) -> bool:
    if text != "on":
        raise ValueError(f"{text!r} is neither on nor {OFF}")
    return True


def _oom_kill(text: str) -> OomKill:
    kinds = {oom_kill.name.lower(): oom_kill for oom_kill in OomKill if oom_kill is not OomKill.OFF}
    if text not in kinds:
        raise ValueError(f"{text!r} is not kubelet, container or process")
    return kinds[text]


def _time(
    name: str, meaning: str, source: str, *, off: int | None = 0, when_off: str = "no time"
) -> Model:
    """Return a model whose value is a duration and whose field is named after it."""
    return Model(
        name=name,
        field=f"{name.replace('-', '_')}_ns",
        meaning=meaning,
        source=source,
        off=off,
        when_off=when_off,
        read=duration_ns,
        show=shown,
    )


_MODELS = (
    _time("start-delay", "from bound to Running, where the trace has no value", "assumed"),
    _time(
        "ready-delay",
        "from Running to Ready, where the trace has no value",
        "assumed",
        when_off="containers are ready once they run",
    ),
    _time(
        "image-pull",
        "added to it for each image that the node does not have; a node pulls one by one",
        "kubelet v1.34, serializeImagePulls",
    ),
    _time(
        "service-time",
        "how long a pod with restartPolicy OnFailure or Never runs, where no value is recorded",
        "assumed",
        off=None,
        when_off=_UNTIL_DELETED,
    ),
    _time(
        "shutdown",
        "from the request to stop to a pod's end, at most its grace period",
        "assumed",
        off=None,
        when_off="the whole grace period, as where SIGTERM is ignored",
    ),
    _time(
        "budget-delay",
        "from a change of a pod to the status of its PodDisruptionBudgets, which preemption reads",
        "assumed; upstream's disruption controller and scheduler run side by side",
        when_off="each attempt reads the status of its moment",
    ),
    _time(
        "preemption-delay",
        "from the decision to preempt to the deletion of the victims; the preemptor is not tried "
        "again meanwhile",
        "assumed; kubernetes v1.33 and later delete victims beside the scheduling cycles",
        when_off="victims are deleted with the decision",
    ),
    _time(
        "device-ready-delay",
        "from the allocation of devices that have binding conditions until they are ready; the "
        "binding waits for that",
        "assumed; kubernetes v1.36, plugins/dynamicresources, PreBind",
        when_off="no binding waits for devices",
    ),
    _time(
        "node-grace",
        "from a node's last report until it is unreachable",
        "kube-controller-manager v1.34, --node-monitor-grace-period (40s before v1.32)",
    ),
    Model(
        name="taint-eviction",
        field="toleration_s",
        meaning="how long pods without tolerations of their own stay on nodes that are not ready",
        source="kube-apiserver v1.34, --default-unreachable-toleration-seconds; tainteviction",
        off=None,
        when_off="NoExecute taints evict no pods",
        read=_seconds,
        show=lambda seconds: shown(seconds * SECOND_NS),
    ),
    _time(
        "pod-gc",
        "how long the pods of a deleted node exist",
        "podgc v1.34: a quarantine of 40 s, checked every 20 s",
        when_off="they are removed with their node",
    ),
    Model(
        name="terminated-pod-gc",
        field="ended_pods_max",
        meaning="how many ended pods are kept; of more, evicted and then old ones are deleted",
        source="kube-controller-manager v1.34, --terminated-pod-gc-threshold; podgc",
        off=0,
        when_off="they exist until they are deleted",
        read=_count,
        show=str,
    ),
    _time(
        "provisioning-delay",
        "from the autoscaler's request for a node to the node that is ready, where --autoscaler's "
        "file has no value",
        "assumed; clouds take from one to five minutes",
        when_off="nodes are there at once",
    ),
    Model(
        name="node-failures",
        field="node_failures_percent",
        meaning="the share of the nodes that the autoscaler asks for which cannot be made",
        source="assumed; a group backs off after a failure",
        off=0,
        when_off="every node can be made",
        read=_percent,
        show=lambda percent: f"{percent}%",
    ),
    _time(
        "cycle-cost",
        "the duration of a scheduling cycle; the scheduler then takes one pod after the other",
        "measured: kube-scheduler's scheduler_scheduling_algorithm_duration_seconds",
    ),
    _time(
        "bind-cost",
        "the duration of a binding, besides the cycles that follow",
        "measured: kube-scheduler's scheduler_framework_extension_point_duration_seconds of Bind",
    ),
    Model(
        name="stateful-max-unavailable",
        field="stateful_max_unavailable",
        meaning="a StatefulSet's rolling update reads maxUnavailable, as from v1.35 on",
        source="kubernetes v1.34, feature gate MaxUnavailableStatefulSet",
        off=False,
        when_off="one pod after the other, unless the trace is of v1.35 or later",
        read=_on,
        show=lambda _: "on",
    ),
    Model(
        name="eviction",
        field="eviction",
        meaning="node-pressure eviction, where the trace has usage",
        source="kubelet v1.32, eviction manager",
        off=False,
        when_off="kubelets evict no pods",
        read=_on,
        show=lambda _: "on",
    ),
    Model(
        name="oom-kill",
        field="oom_kill",
        meaning="what is killed above a memory limit: the container, or one process, a child; "
        "kubelet: one process where singleProcessOOMKill is set, else the container",
        source="kubelet v1.34, memory.oom.group and singleProcessOOMKill",
        off=OomKill.OFF,
        when_off="memory limits are not enforced",
        read=_oom_kill,
        show=lambda value: OomKill(value).name.lower(),
    ),
)
MODELS: Mapping[str, Model] = {model.name: model for model in _MODELS}
"""All models by name, in the order in which they are shown."""


def with_values(models: Models, given: Iterable[str]) -> Models:
    """Return `models` with NAME=VALUE texts applied in order. Raises ModelError."""
    for text in given:
        name, equals, value = text.partition("=")
        model = MODELS.get(name)
        if model is None:
            known = ", ".join(MODELS)
            raise ModelError(f"there is no model {name!r}; the models are {known}")
        if not equals or not value:
            raise ModelError(f"{text!r} has no value; write {name}={model.shown(Models())}")
        try:
            read = model.off if value == OFF else model.read(value)
        except ValueError as error:
            raise ModelError(f"model {name}: {error}, or {OFF} ({model.when_off})") from error
        models = replace(models, **{model.field: read})  # type: ignore[arg-type] # by the table
    return models
