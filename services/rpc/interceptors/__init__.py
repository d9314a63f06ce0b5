"""Interceptors of every call of a service: spans, metrics, and refusals as gRPC statuses."""
