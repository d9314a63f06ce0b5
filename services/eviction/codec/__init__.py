"""Converts the eviction service's protobuf messages to core values and back."""
