"""Unit tests of the eviction manager."""
