"""The orders of the sub-queues as bytes: big-endian numbers, so that smaller ones stand first.

Source: kubernetes v1.20 plugins/queuesort/priority_sort.go, Less; v1.34
pkg/scheduler/backend/queue/backoff_queue.go, lessBackoffCompletedWithPriority.
"""

from __future__ import annotations

from struct import Struct

from services.queue.core.entry import Entry

_PRIORITY_MAX = 2**31 - 1
_RANKED = Struct(">IHQQ").pack
_EXPIRING = Struct(">QQ").pack
_NUMBER = Struct(">I").pack
_ARRIVAL = Struct(">QQ").pack
_EXPIRY = Struct(">Q").pack
_END = b"\0\0"


def pop_order(entry: Entry) -> bytes:
    """Return activeQ's order: priority descending or the sort key, queue time, arrival.

    Priorities are int32, times are ns from 0 to below 2^64. Pods with a sort key stand as if of
    priority 0 among pods without one, which have an empty key.
    """
    pod = entry.pod
    if not pod.sort_key:
        return _RANKED(_PRIORITY_MAX - pod.priority, 0, entry.timestamp_ns, entry.sequence)
    rank = _NUMBER(_PRIORITY_MAX) + _ended(pod.sort_key)
    return rank + _ARRIVAL(entry.timestamp_ns, entry.sequence)


def expiry_order(entry: Entry, expiry_ns: int) -> bytes:
    """Return a backoffQ's order: the end of the backoff from -1 on, then arrival."""
    return _EXPIRING(expiry_ns + 1, entry.sequence)


def ranked_expiry_order(entry: Entry, expiry_ns: int) -> bytes:
    """Return the order of a backoffQ that is popped from: of one end, as in activeQ."""
    return _EXPIRY(expiry_ns + 1) + pop_order(entry)


def _ended(sort_key: bytes) -> bytes:
    """Return the key so that what follows it does not change its place among other keys."""
    return sort_key.replace(b"\0", b"\0\xff") + _END
