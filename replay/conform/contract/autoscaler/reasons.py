"""Rules 8 to 10: what is refused, and what a scan reports of its scale-up."""

from __future__ import annotations

from functools import partial

from replay.conform.contract.autoscaler.small_cloud import (
    SmallCloud,
    change,
    create,
    expect_none,
    group,
    outcome,
    pod,
    scan,
    start,
    step,
    work,
)
from replay.conform.contract.checks import Checks, ContractClient, expect, expect_refusal, only
from reprieve.autoscaler.v1beta1 import autoscaler_service_pb2 as service_pb

CHECKS = Checks()
_OUT_OF_ORDER = "FAILED_PRECONDITION", "PRECONDITION"


@CHECKS.level(2, rule=8)
def refuses_steps_out_of_order(client: ContractClient) -> None:
    """Check them before the start, between steps and while a call waits; nothing is changed."""
    next_part = {"next_part": service_pb.NextPart()}
    session = client.session(create())
    for early in (scan(0), work(0), outcome(0)):
        request = session.stamped(service_pb.ApplyRequest(step=early))
        expect_refusal(partial(client.call, "Apply", request), *_OUT_OF_ORDER)
    cloud = SmallCloud(client, group(), pod("p", 3))
    for wrong in (start(5), outcome(5), step(5, **next_part)):
        cloud.refuses_step(wrong)
    cloud.send(scan(10))
    for wrong in (scan(10), work(10), start(10), step(10, **next_part)):
        cloud.refuses_step(wrong)
    answer = cloud.send(outcome(10, is_refused=True))
    expect("the result after the outcome", answer.WhichOneof("result"), "report")


@CHECKS.level(2, rule=8)
def changes_nothing_by_a_refused_request(client: ContractClient) -> None:
    """Check that a refused request applies none of its changes.

    One request has an invalid change after a valid one, another has a step that is refused.
    """
    cloud = SmallCloud(client, group())
    nameless = change(group())
    nameless.node_group.name = ""
    waiting = change(pod("p", 3))
    bad = cloud.session.stamped(service_pb.ApplyRequest(changes=[waiting, nameless], step=scan(10)))
    expect_refusal(
        lambda: client.call("Apply", bad),
        "INVALID_ARGUMENT",
        "BAD_FIELD",
        "changes[1].node_group.name",
    )
    late = cloud.session.stamped(service_pb.ApplyRequest(changes=[waiting], step=start(10)))
    expect_refusal(partial(client.call, "Apply", late), *_OUT_OF_ORDER)
    expect_none("calls after refused requests", cloud.calls_of_scan(10))


@CHECKS.level(2, rule=9)
def reports_a_scale_up(client: ContractClient) -> None:
    """Check result, sizes, the pods that triggered it, and the upcoming nodes."""
    cloud = SmallCloud(client, group(), pod("p", 3), pod("q", 3))
    report = cloud.scan(10)
    expect("scale_up.result", report.scale_up.result, "Successful")
    grown = only("scale_up.groups", report.scale_up.groups)
    expect("scale_up.groups[0]", (grown.group, grown.from_size, grown.to_size), ("g", 0, 2))
    keys = ["default/p", "default/q"]
    expect("scale_up.triggered", sorted(report.scale_up.triggered), keys)
    expect("pods_to_help", sorted(report.pods_to_help), keys)
    expect("upcoming", dict(report.upcoming), {"g": 2})
    report = cloud.scan(20)
    expect("scale_up.result where all pods have nodes to come", report.scale_up.result, "NotNeeded")
    expect("upcoming", dict(report.upcoming), {"g": 2})


@CHECKS.level(2, rule=10)
def reports_why_no_group_helps(client: ContractClient) -> None:
    """Check groups on whose nodes a pod does not fit, and groups that are full."""
    cloud = SmallCloud(client, group("full", most=0), group("small", 2), pod("p", 3))
    report = cloud.scan(10)
    expect("scale_up.result", report.scale_up.result, "NoOptionsAvailable")
    remaining = only("scale_up.remaining", report.scale_up.remaining)
    expect("scale_up.remaining[0].pod", remaining.pod, "default/p")
    expect("scale_up.remaining[0].rejected_groups", list(remaining.rejected_groups), ["small"])
    skipped = [(it.group, list(it.reasons)) for it in remaining.skipped_groups]
    full = ("full", ["max node group size reached"])
    expect("scale_up.remaining[0].skipped_groups", skipped, [full])
    expect("pods_to_help", list(report.pods_to_help), ["default/p"])
