"""What plugins say of a pod that is assumed: Reserve, Permit and PreBind, and what a no means.

A refusal by Reserve or Permit makes the pod unschedulable, with the plugin to wait for. PreBind is
part of the binding cycle: its refusal names no plugin to wait for, and the pod that had been
assumed counts as deleted. Anything else than a refusal is an error; so is a wish to wait, which
is not served yet.

Source: kubernetes v1.34 pkg/scheduler/schedule_one.go, schedulingCycle, bindingCycle,
handleBindingCycleError, handleSchedulingFailure.
"""

from __future__ import annotations

from dataclasses import dataclass

from services.kube.pod import Pod
from services.scheduler.core.cycle import Suggested
from services.scheduler.core.decisions import Failed, Refused
from services.scheduler.core.diagnosis import fit_error_text, reason_counts, refused_when_assumed
from services.scheduler.core.extenders_chain import Extenders
from services.scheduler.core.framework import Framework
from services.scheduler.core.preemption.preemptor import ExtenderError
from services.scheduler.core.status import SUCCESS, Code, Status


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnedDown:
    """The pod is not bound after all; `in_binding` tells that PreBind or Bind said so."""

    verdict: Refused | Failed
    in_binding: bool


def why_not_bound(
    framework: Framework, pod: Pod, suggested: Suggested, extenders: Extenders
) -> TurnedDown | None:
    """Run Reserve, Permit, PreBind and Bind for an assumed pod; None where it is to be bound.

    An extender that binds comes before the plugins that do.

    Where it may not, everything is unreserved when this returns.
    """
    status = framework.reserve(pod, suggested.row)
    if status is not None:
        return TurnedDown(verdict=_in_scheduling(status), in_binding=False)
    status = framework.permit(pod, suggested.row)
    if status is not None:
        framework.unreserve(pod, suggested.row)
        return TurnedDown(verdict=_in_scheduling(status), in_binding=False)
    status = framework.pre_bind(pod, suggested.node_name)
    if status is None:
        by_extender = extenders.bind(pod, suggested.node_name)
        if isinstance(by_extender, ExtenderError):
            framework.unreserve(pod, suggested.row)
            return TurnedDown(verdict=Failed(message=by_extender.message), in_binding=True)
        bound = SUCCESS if by_extender else framework.bind(pod, suggested.node_name)
        status = None if bound.code is Code.SUCCESS else bound
    if status is not None:
        framework.unreserve(pod, suggested.row)
        return TurnedDown(verdict=_in_binding(status), in_binding=True)
    return None


def _in_scheduling(status: Status) -> Refused | Failed:
    if not status.code.is_rejected:
        return _failed(status)
    diagnosis = refused_when_assumed(status)
    reasons = reason_counts(diagnosis)
    return Refused(
        message=fit_error_text(diagnosis, reasons=reasons),
        plugins=diagnosis.unschedulable_plugins,
        pending_plugins=diagnosis.pending_plugins,
        nominated_node_name="",
        reasons=reasons,
    )


def _in_binding(status: Status) -> Refused | Failed:
    if not status.code.is_rejected:
        return _failed(status)
    reasons = tuple((reason, 1) for reason in status.reasons)
    return Refused(message=status.message, nominated_node_name="", reasons=reasons)


def _failed(status: Status) -> Failed:
    if status.code is Code.SKIP:
        return Failed(message="no Bind plugin took the pod")
    waits = status.code is Code.WAIT
    said = "waiting at Permit is not served" if waits else status.message
    return Failed(message=f"running plugin {status.plugin!r}: {said}")
