"""Unit tests of the scheduling queue's core."""
