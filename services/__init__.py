"""The services and what they share; never a source root, or `queue` would shadow Python's."""
