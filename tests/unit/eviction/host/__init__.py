"""A live node, on recorded files."""
