"""The queue's rules by version."""
