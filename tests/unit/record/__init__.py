"""Tests of recording live clusters."""
