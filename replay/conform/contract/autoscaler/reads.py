"""Rules 19 to 21: what can be read of a session, when it can be saved, and what may be left out."""

from __future__ import annotations

from replay.conform.contract.autoscaler.scale_down import FLAGS
from replay.conform.contract.autoscaler.small_cloud import (
    SmallCloud,
    group,
    node,
    outcome,
    pod,
    scan,
)
from replay.conform.contract.checks import (
    Checks,
    ContractClient,
    NotServedError,
    expect,
    expect_refusal,
    only,
)
from reprieve.autoscaler.v1beta1 import autoscaler_pb2 as pb
from services.kube.time import SECOND_NS

CHECKS = Checks()


@CHECKS.level(4, rule=19)
def shows_the_state_of_groups(client: ContractClient) -> None:
    """Check GetState: the call that waits, an open request, and a backoff."""
    flags = {"initial_node_group_backoff_duration": "30s", "max_node_provision_time": "60s"}
    cloud = SmallCloud(client, group(), pod("p", 3), **flags)
    cloud.send(scan(10))
    waiting = cloud.session.state()
    expect("time_ns", waiting.time_ns, 10 * SECOND_NS)
    expect("call", waiting.call.increase_size.group, "g")
    cloud.send(outcome(10, is_refused=True))
    state = cloud.session.state()
    expect("call after its outcome", state.HasField("call"), expected=False)
    failed = only("groups", state.groups)
    backoff = (failed.group, failed.backoff_until_time_ns, failed.backoff_code)
    expect("groups[0]", backoff, ("g", 40 * SECOND_NS, "cloudProviderError"))
    expect("groups[0].requested_nodes", failed.requested_nodes, 0)
    cloud.take(scan(50))
    asked = only("groups", cloud.session.state().groups)
    request = (asked.requested_nodes, asked.requested_time_ns, asked.expected_time_ns)
    expect("groups[0]", request, (1, 50 * SECOND_NS, 110 * SECOND_NS))


@CHECKS.level(4, rule=19)
def shows_the_state_of_nodes(client: ContractClient) -> None:
    """Check GetState: since when a node is unneeded, and its deletion."""
    things = (group(running=1), node("g-0"))
    cloud = SmallCloud(client, *things, **FLAGS, node_delete_delay_after_taint="5s")
    cloud.run(10, 40)
    kept = only("nodes", cloud.session.state().nodes)
    since = (kept.node_name, kept.unneeded_since_time_ns, kept.deletion)
    expect("nodes[0]", since, ("g-0", 10 * SECOND_NS, pb.DELETION_STAGE_UNSPECIFIED))
    cloud.run(50, 50)
    kept = only("nodes", cloud.session.state().nodes)
    expect("nodes[0].deletion", kept.deletion, pb.DELETION_STAGE_WAITING)
    expect("nodes[0].deletion_due_time_ns", kept.deletion_due_time_ns, 55 * SECOND_NS)


@CHECKS.level(4, rule=20)
def saves_no_session_in_a_step(client: ContractClient) -> None:
    """Check that it is refused while a call waits, and served after the step."""
    cloud = SmallCloud(client, group(), pod("p", 3))
    if not cloud.session.opened.resumable:
        raise NotServedError("Session.resumable is false")
    cloud.send(scan(10))
    expect_refusal(cloud.session.checkpoint, "FAILED_PRECONDITION", "PRECONDITION")
    cloud.send(outcome(10, is_refused=True))
    expect("chunks after the step", bool(cloud.session.checkpoint()), expected=True)


@CHECKS.level(4, rule=21)
def says_which_scans_are_the_same(client: ContractClient) -> None:
    """Check each scan that may be left out: with unneeded nodes, pods that wait, and a backoff."""
    flags = {**FLAGS, "initial_node_group_backoff_duration": "45s"}
    things = (group(running=1), node("g-0"), group("h", 16), pod("p", 12), pod("q", 50))
    cloud = SmallCloud(client, *things, **flags)
    cloud.refuses["increase_size"] = {"h"}
    cloud.run(10, 300)
