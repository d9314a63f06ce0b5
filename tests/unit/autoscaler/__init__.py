"""Unit tests of the autoscaler."""
