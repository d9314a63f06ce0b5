"""Tests of replay.explain."""
