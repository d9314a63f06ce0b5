"""The resource of every span, with what the standard OTEL_ variables add to it."""

from __future__ import annotations

from opentelemetry.sdk.resources import OTELResourceDetector, Resource

SCOPE = "reprieve"
"""Instrumentation scope of every span."""


def resource(version: str, service: str = "") -> Resource:
    """Return the resource of the replay, or of one of its services.

    OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES override it.
    """
    name = f"reprieve-{service}" if service else "reprieve"
    own = Resource({"service.name": name, "service.version": version})
    return own.merge(OTELResourceDetector().detect())
