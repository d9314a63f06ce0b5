"""The eviction manager's pure core."""
