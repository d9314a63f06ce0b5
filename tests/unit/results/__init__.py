"""Tests of what a replay leaves behind and shows."""
