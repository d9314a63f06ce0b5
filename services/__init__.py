"""The three services and what they share; never a source root (its `queue` would shadow Python's)."""
