"""Tests of what a replay runs its services with."""
