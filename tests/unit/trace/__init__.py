"""Tests of the native trace and of generated ones."""
