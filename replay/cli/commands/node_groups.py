"""`reprieve node-groups`: the node groups of a trace, as a file for --autoscaler."""

from __future__ import annotations

import click

from replay.autoscaling.errors import GroupsError
from replay.autoscaling.file import AutoscalerFile, written
from replay.autoscaling.observed import ObservedNodes, fixed
from replay.cli.errors import refusing
from replay.cli.traces import TraceArguments, trace_options
from services.terminal import echo


@click.command(name="node-groups")
@click.option(
    "--as-groups",
    is_flag=True,
    help="Make groups of Karpenter's pools, too, although Karpenter decides otherwise than Cluster "
    "Autoscaler does.",
)
@trace_options
def command(trace: TraceArguments, *, as_groups: bool) -> None:
    """Print the node groups of a trace, as a file for `reprieve replay --autoscaler`.

    Nodes are of one group if a label of EKS, GKE, AKS or kOps, or an annotation of Cluster API,
    says so, and they are the same machine; nodes without such a label by their machine alone. The
    sizes are the least and the largest that the trace has: edit them, and add prices.

    \b
    Examples:
      reprieve node-groups recording/ > groups.yaml
      reprieve replay recording/ --autoscaler groups.yaml
    """
    observed = ObservedNodes(as_groups=as_groups)
    with refusing(GroupsError):
        for record in trace.records():
            observed.add(record)
        groups = observed.groups()
    echo(*written(AutoscalerFile(groups=groups)).splitlines())
    if names := fixed(groups):
        text = ", ".join(names)
        echo(
            f"{text}: one size throughout the trace, so min and max are equal and nothing would be "
            "scaled; edit them",
            err=True,
        )
    if observed.pools_of_karpenter and not as_groups:
        pools = ", ".join(observed.pools_of_karpenter)
        echo(f"left out: nodes of Karpenter's pools {pools} (--as-groups takes them)", err=True)
