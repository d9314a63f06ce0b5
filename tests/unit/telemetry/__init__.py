"""Tests of spans: which are kept, and where they go."""
