"""Tests of what a user overrides."""
