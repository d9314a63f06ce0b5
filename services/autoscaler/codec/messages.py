"""Converts configurations and node groups from protobuf, and cloud calls and reports to it.

A FieldError has the path of what is wrong in the request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING

from reprieve.autoscaler.v1beta1 import autoscaler_pb2 as pb
from reprieve.autoscaler.v1beta1 import autoscaler_service_pb2 as service_pb
from services.autoscaler.codec.objects import cluster_node
from services.autoscaler.core.calls import (
    CLOUD_PROVIDER_ERROR,
    Call,
    DecreaseTargetSize,
    DeleteNodes,
    Done,
    Evict,
    IncreaseSize,
    MarkNode,
    Outcome,
    Refused,
    UnmarkNode,
)
from services.autoscaler.core.expander.chain import ExpanderChain
from services.autoscaler.core.expander.options import ExpanderContext, PodPrice
from services.autoscaler.core.groups import Instance, InstanceState, NodeGroup
from services.autoscaler.core.options import (
    GroupOptions,
    Options,
    OptionsError,
    from_flags,
    group_options,
)
from services.kube.time import SECOND_NS
from services.rpc.errors import FieldError
from services.rpc.parts import split

if TYPE_CHECKING:
    from services.autoscaler.core.reports import ScaleUpReport, ScanReport

DURATION_NS_MAX = 2**61
"""The longest duration of an option, ns: a time plus a few of them fits into 64 bits."""
_STATES: Mapping[int, InstanceState] = {
    pb.INSTANCE_STATE_RUNNING: InstanceState.RUNNING,
    pb.INSTANCE_STATE_CREATING: InstanceState.CREATING,
    pb.INSTANCE_STATE_DELETING: InstanceState.DELETING,
}


def options_from_message(
    config: pb.AutoscalerConfig, *, field: str = "config"
) -> tuple[Options, ExpanderContext]:
    """Return a session's options, and the context of its expanders. Raises FieldError."""
    try:
        options = from_flags(dict(sorted(config.flags.items())))
        ExpanderChain(options.expander)
        _check_durations(options)
        _check_durations(options.group_defaults)
    except OptionsError as error:
        raise FieldError(f"{field}.flags", str(error)) from error
    context = ExpanderContext(
        pod_price=PodPrice(core=config.pod_price.core, gib=config.pod_price.gib),
        priorities=config.priorities if config.HasField("priorities") else None,
        gpu_label=config.gpu_label,
    )
    return options, context


def group_from_message(message: pb.NodeGroup, defaults: GroupOptions, *, field: str) -> NodeGroup:
    """Return a group. Raises FieldError."""
    try:
        options = group_options(dict(sorted(message.options.items())), defaults)
        _check_durations(options)
    except OptionsError as error:
        raise FieldError(f"{field}.options", str(error)) from error
    if not 0 <= message.min_size <= message.max_size:
        raise FieldError(f"{field}.min_size", "must be between 0 and max_size")
    if message.target_size < 0:
        raise FieldError(f"{field}.target_size", "must not be negative")
    return NodeGroup(
        name=message.name,
        min_size=message.min_size,
        max_size=message.max_size,
        target=message.target_size,
        template=cluster_node(message.template, field=f"{field}.template"),
        instances=tuple(
            Instance(
                provider_id=instance.provider_id,
                state=_state(instance.state, f"{field}.instances[{index}].state"),
                error_class=instance.error_class,
                error_code=instance.error_code,
            )
            for index, instance in enumerate(message.instances)
        ),
        price=message.price if message.HasField("price") else None,
        options=options,
    )


def _check_durations(options: Options | GroupOptions) -> None:
    """Raise OptionsError for a duration that is too long."""
    for option in fields(options):
        unit_ns = 1 if option.name.endswith("_ns") else SECOND_NS
        value = getattr(options, option.name)
        if option.name.endswith(("_ns", "_s")) and value * unit_ns > DURATION_NS_MAX:
            raise OptionsError(f"{option.name} is too long: use at most 2^61 ns, 73 years")


def _state(state: int, field: str) -> InstanceState:
    if state not in _STATES:
        raise FieldError(field, f"{state} is not a state of an instance")
    return _STATES[state]


def outcome_from_message(message: service_pb.Outcome) -> Outcome:
    """Return the outcome of a call."""
    if not message.refused:
        return Done()
    code = message.code or CLOUD_PROVIDER_ERROR
    return Refused(code=code, message=message.message, gone=message.gone)


def call_to_message(call: Call) -> pb.Call:
    """Return a call's message."""
    return _CALLS[type(call)](call)


def _increase(call: IncreaseSize) -> pb.Call:
    return pb.Call(increase_size=pb.IncreaseSize(group=call.group, delta=call.delta))


def _decrease(call: DecreaseTargetSize) -> pb.Call:
    message = pb.DecreaseTargetSize(group=call.group, delta=call.delta)
    return pb.Call(decrease_target_size=message)


def _delete(call: DeleteNodes) -> pb.Call:
    message = pb.DeleteNodes(group=call.group, provider_ids=call.provider_ids, force=call.force)
    return pb.Call(delete_nodes=message)


def _evict(call: Evict) -> pb.Call:
    return pb.Call(
        evict_pod=pb.EvictPod(
            namespace=call.namespace,
            name=call.name,
            grace_period_duration_ns=call.grace_s * SECOND_NS,
        )
    )


def _mark(call: MarkNode) -> pb.Call:
    message = pb.MarkNode(node_name=call.node, cordon=call.cordon)
    taint = message.taint
    taint.key, taint.value, taint.effect = call.taint.key, call.taint.value, call.taint.effect.value
    return pb.Call(mark_node=message)


def _unmark(call: UnmarkNode) -> pb.Call:
    return pb.Call(
        unmark_node=pb.UnmarkNode(
            node_name=call.node, taint_key=call.taint_key, uncordon=call.uncordon
        )
    )


_CALLS: Mapping[type, Callable[..., pb.Call]] = {
    IncreaseSize: _increase,
    DecreaseTargetSize: _decrease,
    DeleteNodes: _delete,
    Evict: _evict,
    MarkNode: _mark,
    UnmarkNode: _unmark,
}


def report_parts(report: ScanReport) -> Iterator[pb.ScanReport]:
    """Yield a report's message in parts; each has the fields that every report must have."""
    whole = _report(report)
    for part in split(whole):
        part.scale_down = whole.scale_down
        for name in ("scale_up", "min_size_scale_up"):
            if part.HasField(name):
                getattr(part, name).result = getattr(whole, name).result
        yield part


def _report(report: ScanReport) -> pb.ScanReport:
    message = pb.ScanReport(
        error=report.error,
        stopped=report.stopped.value if report.stopped is not None else "",
        pods_to_help=report.pods_to_help,
        scale_down=report.scale_down.value,
        deletions=[
            pb.NodeDeletion(
                node_name=started.node,
                drained=started.evict is not None,
                evicted_pods=started.evict or (),
            )
            for started in report.deleting
        ],
        delete_results={name: result.value for name, result in report.delete_results.items()},
        unneeded=[
            pb.UnneededNode(node_name=name, since_time_ns=since_ns)
            for name, since_ns in report.unneeded.items()
        ],
        unremovable=[
            pb.UnremovableNode(
                node_name=name,
                reason=unremovable.reason.value,
                blocking_pod=unremovable.pod,
                blocking_reason=unremovable.why.value if unremovable.why is not None else "",
            )
            for name, unremovable in report.unremovable.items()
        ],
        utilizations=[
            pb.NodeUtilization(
                node_name=name,
                resource=measured.resource,
                ratio=measured.share,
                cpu_ratio=measured.cpu,
                memory_ratio=measured.memory,
                gpu_ratio=measured.gpu,
            )
            for name, measured in report.utilizations.items()
        ],
        upcoming=report.upcoming,
        backoff=report.backoff,
        unhealthy_groups=report.unhealthy_groups,
    )
    if report.scale_up is not None:
        message.scale_up.CopyFrom(_scale_up(report.scale_up))
    if report.min_size_scale_up is not None:
        message.min_size_scale_up.CopyFrom(_scale_up(report.min_size_scale_up))
    return message


def _scale_up(report: ScaleUpReport) -> pb.ScaleUpReport:
    return pb.ScaleUpReport(
        result=report.result.value,
        groups=[
            pb.GroupIncrease(
                group=increase.group, from_size=increase.from_size, to_size=increase.to_size
            )
            for increase in report.groups
        ],
        triggered=report.triggered,
        awaiting=report.awaiting,
        remaining=[
            pb.RemainingPod(
                pod=pod.pod,
                rejected_groups=pod.rejected,
                skipped_groups=[
                    pb.SkippedGroup(group=name, reasons=reasons)
                    for name, reasons in pod.skipped.items()
                ],
            )
            for pod in report.remain
        ],
        failed_groups=report.failed_groups,
    )
