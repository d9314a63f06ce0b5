"""A sink of spans for tests."""

from __future__ import annotations

from services.telemetry.span import Delivery, SinkPosition, Span


class KeptSpans:
    """A SpanSink that keeps what it is given, in `spans`."""

    def __init__(self) -> None:
        self.spans: list[Span] = []

    def end(self, span: Span) -> None:
        """Keep a span."""
        self.spans.append(span)

    def flush(self) -> None:
        """Do nothing: spans are kept at once."""

    def position(self, *, syncs: bool = True) -> SinkPosition:  # noqa: ARG002 - the protocol's
        """Return that no span waits."""
        return SinkPosition(0, 0)

    def close(self) -> Delivery:
        """Count what was kept."""
        return Delivery(ended=len(self.spans), delivered=len(self.spans))

    def of(self, pod: str) -> dict[str, Span]:
        """Return a pod's spans by name."""
        root = next(
            span
            for span in self.spans
            if span.name == "Pod" and span.attributes["k8s.pod.name"] == pod
        )
        trace_id = root.context.trace_id
        return {span.name: span for span in self.spans if span.context.trace_id == trace_id}
