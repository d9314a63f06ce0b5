"""Tests of the controllers of pods."""
