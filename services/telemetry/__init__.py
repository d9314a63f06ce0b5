"""The only OpenTelemetry set-up."""
