"""Rules 22 to 24: Cluster Autoscaler's own choices between groups, its flags, and long reports."""

from __future__ import annotations

from functools import partial

from replay.conform.contract.autoscaler.small_cloud import (
    SmallCloud,
    change,
    create,
    group,
    increases,
    pod,
)
from replay.conform.contract.checks import Checks, ContractClient, expect, expect_refusal
from reprieve.autoscaler.v1beta1 import autoscaler_service_pb2 as service_pb

CHECKS = Checks()
LONG_NAME, PODS = 250, 5000
"""With so many pods of such names a report is longer than a message may be."""
PODS_OF_REQUEST = 1000


@CHECKS.level(5, rule=22)
def chooses_groups_as_its_expanders_do(client: ContractClient) -> None:
    """Check least-waste, the default, least-nodes and most-pods, each where it decides alone."""
    large, small = group("a-large", 16), group("b-small", 4)
    pods = [pod(f"p{number}", 2) for number in range(3)]
    for flags, best in (
        ({}, {"b-small": 2}),
        ({"expander": "least-waste"}, {"b-small": 2}),
        ({"expander": "least-nodes"}, {"a-large": 1}),
    ):
        cloud = SmallCloud(client, large, small, *pods, **flags)
        name = flags.get("expander", "no flag")
        expect(f"increases with {name}", increases(cloud.calls_of_scan(10)), best)
    tainted = group("a-tainted", 8, "gpu")
    tolerant = pod("t", 2, tolerations=[{"key": "gpu", "operator": "Exists"}])
    things = (tainted, small, tolerant, pod("p", 2))
    cloud = SmallCloud(client, *things, expander="most-pods")
    expect("increases with most-pods", increases(cloud.calls_of_scan(10)), {"b-small": 1})


@CHECKS.level(5, rule=23)
def refuses_flags_that_do_not_exist(client: ContractClient) -> None:
    """Check a session's flags, values that cannot be read, and a group's options."""
    for flags in ({"no_such_flag": "1"}, {"scale_down_unneeded_time": "soon"}):
        expect_refusal(
            partial(client.call, "CreateSession", create(**flags)),
            "INVALID_ARGUMENT",
            "BAD_FIELD",
            "config.flags",
        )
    session = client.session(create())
    strange = change(group(options={"expander": "price"}))
    request = session.stamped(service_pb.ApplyRequest(changes=[strange]))
    expect_refusal(
        lambda: client.call("Apply", request),
        "INVALID_ARGUMENT",
        "BAD_FIELD",
        "changes[0].node_group.options",
    )


@CHECKS.level(5, rule=24)
def reports_thousands_of_pods(client: ContractClient) -> None:
    """Check that a report too large for one message arrives complete."""
    cloud = SmallCloud(client, group("small", 2))
    names = [f"{number:0{LONG_NAME}}" for number in range(PODS)]
    for first in range(0, PODS, PODS_OF_REQUEST):
        cloud.put(*(pod(name, 3) for name in names[first : first + PODS_OF_REQUEST]))
        cloud.send(None)
    report = cloud.scan(10)
    keys = {f"default/{name}" for name in names}
    expect("pods_to_help are all pods", set(report.pods_to_help) == keys, expected=True)
    remaining = {it.pod for it in report.scale_up.remaining}
    expect("scale_up.remaining are all pods", remaining == keys, expected=True)
