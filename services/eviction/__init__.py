"""The node-pressure eviction service."""
