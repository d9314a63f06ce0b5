"""Tests of overrides."""
