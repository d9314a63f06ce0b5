"""Eviction's messages to the core's values and back."""
