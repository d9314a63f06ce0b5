"""Who emits: the resource of every span, with what the standard OTEL_ variables add to it."""

from __future__ import annotations

from opentelemetry.sdk.resources import OTELResourceDetector, Resource

SCOPE = "reprieve"
"""Instrumentation scope of every span."""


def resource(version: str) -> Resource:
    """Return the resource; OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES have the last word."""
    own = Resource({"service.name": "reprieve", "service.version": version})
    return own.merge(OTELResourceDetector().detect())
