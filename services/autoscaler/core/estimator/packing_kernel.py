"""Pods on copies of one node where nothing but what they request decides, as a loop over numbers.

The rules are those of binpacking.py, which has them once more for pods that other pods may refuse;
a property test holds the two equal. Amounts of a pod or a node are the number of pods at index 0,
and then each resource by its column in the snapshot, one further.
"""

from __future__ import annotations

import numpy as np

from services.framework.columns.columns import Int64s
from services.framework.columns.kernels import Int8s, Kernel, compiled, inlined

NODES, LAST_PLACE, PERMITTED, MAY_ADD = range(4)
"""What `state` holds: how many nodes were added, the place of the last match of a search, how many
nodes the limiter has permitted, and whether more may be added."""

NO_HOST = -1


@inlined
def _takes(free: Int64s, node: int, requests: Int64s, group: int) -> bool:
    for i in range(requests.shape[1]):
        # An amount of 0 always fits, also where more is taken already than there is.
        if requests[group, i] > 0 and requests[group, i] > free[node, i]:
            return False
    return True


@inlined
def _put(free: Int64s, has_pods: Int8s, node: int, requests: Int64s, group: int) -> None:
    for i in range(requests.shape[1]):
        free[node, i] -= requests[group, i]
    has_pods[node] = 1


@compiled
def pack(  # noqa: PLR0917 - compiled code takes its arguments by position
    hosts: Int64s,
    ends: Int64s,
    requests: Int64s,
    empty: Int64s,
    free: Int64s,
    has_pods: Int8s,
    state: Int64s,
    limit: int,
    places_before: int,
    is_searched: bool,
) -> None:
    """Write each pod's node into `hosts`, int64[pods], which are NO_HOST before.

    ends: int64[groups], where each group's pods end. wanted: int64[groups, amounts], of one pod of
    each. empty: int64[amounts], what a new node has. free, has_pods: int64[nodes, amounts] and
    int8[nodes] of the added nodes, with room for one for each pod and one more. limit: how many
    nodes may be added, 0 for any number, below 0 for none. places_before: how many nodes come
    before the added ones. is_searched: whether a search may end at an added node.
    """
    pod = 0
    for group in range(len(ends)):
        end = ends[group]
        is_found = is_searched
        while is_found and pod < end:
            is_found = False
            nodes = state[NODES]
            places = places_before + nodes
            begin = 0
            if nodes > 0:
                begin = max((state[LAST_PLACE] + 1) % places - places_before, 0)
            for step in range(nodes):
                node = (begin + step) % nodes
                if _takes(free, node, requests, group):
                    _put(free, has_pods, node, requests, group)
                    hosts[pod] = node
                    state[LAST_PLACE] = places_before + node
                    pod += 1
                    is_found = True
                    break
        while state[MAY_ADD] and pod < end:
            last = state[NODES] - 1
            if last >= 0 and _takes(free, last, requests, group):
                _put(free, has_pods, last, requests, group)
                hosts[pod] = last
                pod += 1
                continue
            if last >= 0 and not has_pods[last]:
                break  # it refuses the pod although it is empty: so would another one
            if limit < 0 or (limit > 0 and state[PERMITTED] >= limit):
                state[MAY_ADD] = 0
                break
            state[PERMITTED] += 1
            state[NODES] += 1
            last += 1
            for i in range(len(empty)):
                free[last, i] = empty[i]
            has_pods[last] = 0
            if not _takes(free, last, requests, group):
                break
            _put(free, has_pods, last, requests, group)
            hosts[pod] = last
            pod += 1
        pod = end


def warm_up() -> None:
    """Compile the kernel or load it from disk; the build of an image fills numba's cache so.

    From now on this process compiles every kernel at its first call.
    """
    Kernel.plain_steps = 0
    hosts, ends = np.full(1, NO_HOST, dtype=np.int64), np.ones(1, dtype=np.int64)
    amounts, free = np.ones((1, 1), dtype=np.int64), np.zeros((1, 1), dtype=np.int64)
    state = np.array([0, 0, 0, 1], dtype=np.int64)
    pack(hosts, ends, amounts, amounts[0], free, np.zeros(1, dtype=np.int8), state, 1, 0, True)
    assert hosts[0] == 0, "the pod is on the node that was added"
