"""Reprieve's tests."""
