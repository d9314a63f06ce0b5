"""Tests: unit/scheduler."""
