"""Rules 11 and 12: scale-ups that the cloud refuses, or that bring no nodes."""

from __future__ import annotations

from replay.conform.contract.autoscaler.small_cloud import (
    Called,
    SmallCloud,
    changing,
    expect_none,
    group,
    increases,
    pod,
)
from replay.conform.contract.checks import Checks, ContractClient, expect

CHECKS = Checks()


def _increased(calls: list[Called]) -> list[tuple[str, float]]:
    """Return the groups that were to be increased, each with the second of the call."""
    grown = [made for made in calls if made.call.HasField("increase_size")]
    return [(made.call.increase_size.group, made.second) for made in grown]


@CHECKS.level(3, rule=11)
def backs_off_from_a_group_that_is_refused(client: ContractClient) -> None:
    """Check the report, that the group is left alone for its backoff, and another one is not."""
    cloud = SmallCloud(client, group(), pod("p", 3), initial_node_group_backoff_duration="30s")
    cloud.refuses["increase_size"] = {"*"}
    report = cloud.scan(10)
    expect("scale_up.result", report.scale_up.result, "Error")
    expect("scale_up.failed_groups", list(report.scale_up.failed_groups), ["g"])
    expect("backoff", dict(report.backoff), {"g": "cloudProviderError"})
    tries = _increased(cloud.run(20, 60))
    expect("increases after a backoff of 30 s from 10 s on", tries, [("g", 50)])
    cloud = SmallCloud(client, group("a"), group("b"), pod("p", 3), expander="least-nodes")
    cloud.refuses["increase_size"] = {"*"}
    (first,) = increases(cloud.calls_of_scan(10))
    cloud.refuses.clear()
    (second,) = increases(cloud.calls_of_scan(20))
    expect("the group after a refusal is another one", second != first, expected=True)


@CHECKS.level(3, rule=12)
def gives_up_on_nodes_that_do_not_come(client: ContractClient) -> None:
    """Check max-node-provision-time: the group backs off, and its target size is reduced again."""
    cloud = SmallCloud(client, group(), pod("p", 3), max_node_provision_time="30s")
    expect("increases", increases(cloud.calls_of_scan(10)), {"g": 1})
    expect_none("calls until it is over", changing(cloud.run(20, 40)))
    calls, report = cloud.take_scan(50)
    expect("backoff after it", dict(report.backoff), {"g": "timeout"})
    expect("upcoming after it", dict(report.upcoming), {})
    expect("calls that do not take it back", _increased(calls), [])
    expect("increases while it backs off", _increased(cloud.run(60, 100)), [])
    expect("target_size at the end", cloud.groups["g"].target_size, 0)
