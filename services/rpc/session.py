"""One session: the order of its requests, and stored responses for requests that are sent again.

A request's stamp has a session's name and a sequence number. A request with the next number is
processed. If the last request is sent again, or an earlier one whose response the caller has not
acknowledged, the stored response is returned. Any other number is refused before anything is
changed.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from services.rpc.errors import (
    FieldError,
    SequenceMismatchError,
    SequenceReusedError,
    TimeGoesBackwardsError,
    shown_to_callers,
)
from services.rpc.limits import DEFAULT_LIMITS, Limits

TIME_NS_MAX = 2**62
"""The latest time of an operation, ns; times that services compute from it fit into 64 bits."""
Content = TypeVar("Content")


@dataclass(slots=True)
class HeldObjects:
    """The objects of a session: their number, and an estimate of their `size` in bytes.

    The size of a request is added in proportion to the number of its changes that added an object.
    """

    objects: int = 0
    size: int = 0
    _last_size: int = 0
    _last_count: int = 1

    def weigh(self, objects: int, count: int, size: int) -> None:
        """Update the estimate with the number of objects, before a request of `count` changes."""
        grown = objects - self.objects
        if grown > 0:
            self.size += self._last_size * min(grown, self._last_count) // self._last_count
        elif grown < 0:
            self.size = self.size * objects // self.objects
        self.objects, self._last_size, self._last_count = objects, size, max(1, count)


@dataclass(slots=True, kw_only=True, eq=False)
class Session(Generic[Content]):
    """One caller's state: `content` is the service's, `at_ns` the time of its last operation.

    `request` is the last request with a sequence number, `answer` its response. `kept` has earlier
    responses that the caller has not acknowledged, with digests of their requests. `broken` is why
    the session cannot continue. `in_use` counts open streams.
    """

    name: str
    content: Content
    owner: str = ""
    limits: Limits = DEFAULT_LIMITS
    sequence: int = 0
    at_ns: int = -(2**63)
    request: Any = None
    answer: Any = None
    kept: OrderedDict[int, tuple[bytes, Any, int]] = field(default_factory=OrderedDict)
    kept_bytes: int = 0
    broken: str = ""
    in_use: int = 0
    used_s: float = 0.0
    held: HeldObjects = field(default_factory=HeldObjects)

    def repeated(self, request: Any) -> Any:
        """Return the stored response if `request` is sent again; None for the next request.

        Raises SequenceMismatchError for a number out of order, and SequenceReusedError for another
        request with the number of an earlier one (only the trace context may differ).
        """
        sequence = request.stamp.sequence
        if sequence == self.sequence + 1:
            return None
        if not request.stamp.HasField("sequence"):
            raise FieldError("stamp.sequence", f"is required: {self.sequence + 1} comes next")
        if sequence == self.sequence and self.answer is not None:
            self.is_repeated(request, self.request)
            return self.answer
        digest, answer, _ = self.kept.get(sequence, (b"", None, 0))
        if answer is None:
            raise SequenceMismatchError(
                f"stamp.sequence {sequence} is out of order: {self.sequence + 1} comes next",
                expected_sequence=self.sequence + 1,
            )
        if _digest(request) != digest:
            raise self._reused(sequence)
        return answer

    def is_repeated(self, request: Any, earlier: Any) -> bool:
        """Return whether `request` has the number of `earlier`.

        Raises SequenceReusedError for another request with that number.
        """
        sequence: int = request.stamp.sequence
        if sequence != earlier.stamp.sequence:
            return False
        if _bare(request) != _bare(earlier):
            raise self._reused(sequence)
        return True

    def _reused(self, sequence: int) -> SequenceReusedError:
        return SequenceReusedError(
            f"stamp.sequence {sequence} was another request's: {self.sequence + 1} comes next",
            expected_sequence=self.sequence + 1,
        )

    def repeated_or_new(self, request: Any, *, live: bool) -> Any:
        """Act as `repeated`, but in a live session, accept a request without a number as new."""
        return self.repeated(request) if not live or request.stamp.HasField("sequence") else None

    def check_time(self, field: str, at_ns: int, after_ns: int | None = None) -> int:
        """Return `at_ns`. Raises TimeGoesBackwardsError if it is before the last operation."""
        last_ns = self.at_ns if after_ns is None else after_ns
        if at_ns < last_ns:
            raise TimeGoesBackwardsError(
                f"{field}: {at_ns} ns lies before the last operation at {last_ns} ns",
                earliest_time_ns=last_ns,
            )
        return check_time_ns(field, at_ns)

    def advance(self, request: Any, at_ns: int, answer: Any) -> None:
        """Record a processed request and its response."""
        stamp = request.stamp
        if self.kept or stamp.HasField("acknowledged"):
            self._keep_unacknowledged(stamp)
        self.sequence = stamp.sequence
        self.at_ns = at_ns
        self.request, self.answer = request, answer

    def _keep_unacknowledged(self, stamp: Any) -> None:
        """Store the last response unless it is acknowledged; drop acknowledged responses."""
        kept, limits = self.kept, self.limits
        acknowledged = stamp.acknowledged if stamp.HasField("acknowledged") else self.sequence
        if self.sequence > acknowledged and self.answer is not None:
            parts = self.answer if isinstance(self.answer, list) else [self.answer]
            size = sum(part.ByteSize() for part in parts)
            kept[self.sequence] = (_digest(self.request), self.answer, size)
            self.kept_bytes += size
        while kept:
            first = next(iter(kept))
            if (
                first > acknowledged
                and (not (most := limits.unacknowledged_requests) or len(kept) <= most)
                and (not (most := limits.unacknowledged_bytes) or self.kept_bytes <= most)
            ):
                break
            self.kept_bytes -= kept.pop(first)[2]

    def set_broken(self, error: BaseException) -> None:
        """Record that `error` left the session partly changed, so that it cannot continue."""
        self.broken = shown_to_callers(error)

    def complete(self, request: Any, at_ns: int, answer: Any) -> None:
        """Put the sequence number into the response and advance.

        If the request has no number, only set `at_ns`.
        """
        if request.stamp.HasField("sequence"):
            answer.sequence = request.stamp.sequence
            self.advance(request, at_ns, answer)
        else:
            self.at_ns = at_ns


def check_time_ns(field: str, at_ns: int) -> int:
    """Return `at_ns`. Raises FieldError for a time above TIME_NS_MAX."""
    if at_ns > TIME_NS_MAX:
        raise FieldError(field, f"{at_ns} ns is later than any time: use at most 2^62 ns")
    return at_ns


def _bare(request: Any) -> Any:
    """Return a request without the fields that may differ when it is sent again."""
    stamp = request.stamp
    if not stamp.traceparent and not stamp.HasField("acknowledged"):
        return request
    bare = type(request)()
    bare.CopyFrom(request)
    bare.stamp.ClearField("traceparent")
    bare.stamp.ClearField("acknowledged")
    return bare


def _digest(request: Any) -> bytes:
    data = _bare(request).SerializeToString(deterministic=True)
    return hashlib.blake2b(data, digest_size=16).digest()
