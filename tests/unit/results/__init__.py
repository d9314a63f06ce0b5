"""Tests of a run's files and of commands that show them."""
