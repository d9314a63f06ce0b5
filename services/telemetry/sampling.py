"""Which traces are kept, and their ids: functions of (seed, name) and of nothing else.

Source: OpenTelemetry specification 1.40, trace SDK, TraceIdRatioBased (the lowest 8 bytes of the
trace id decide, so that any sampler of the same share decides alike).
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Self

_SPAN_IDS = 1 << 64


class TraceIds:
    """The ids of one trace: its own, and as many span ids as are asked for.

    The first span id is drawn with the trace's, and the others count on from there.
    """

    __slots__ = ("_next", "trace_id")

    def __init__(self, digest: bytes) -> None:
        self.trace_id = digest[:16].hex()
        self._next = int.from_bytes(digest[16:], "big")

    def next_span_id(self) -> str:
        """Return a span id, 16 hexadecimal digits, that the trace has not had yet."""
        self._next = (self._next + 1) % _SPAN_IDS or 1
        return "%016x" % self._next  # noqa: UP031 - twice as fast, several times a pod


@dataclass(frozen=True, slots=True)
class Sampling:
    """The share of traces to keep, 0 to 1."""

    share: float

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read "off", "all" or a percentage such as "1%". Raises ValueError for anything else."""
        if text in ("off", "all"):
            return cls(float(text == "all"))
        try:
            percentage = float(text.removesuffix("%"))
        except ValueError:
            percentage = -1.0
        if not text.endswith("%") or not 0 <= percentage <= 100:
            raise ValueError(f'{text!r} is none of "off", "all" or a percentage such as "1%"')
        return cls(percentage / 100)

    def __str__(self) -> str:
        """Return the share as `parse` reads it."""
        return {0.0: "off", 1.0: "all"}.get(self.share, f"{self.share * 100:.10g}%")

    def pick(self, seed: int, name: str) -> TraceIds | None:
        """Return the ids of the trace of `name` (a pod's UID), None where it is not kept."""
        if not self.share:
            return None
        key = (seed % _SPAN_IDS).to_bytes(8, "big")
        digest = blake2b(name.encode(), digest_size=24, key=key, person=b"reprieve span").digest()
        if int.from_bytes(digest[8:16], "big") >= self.share * _SPAN_IDS:
            return None
        return TraceIds(digest)
