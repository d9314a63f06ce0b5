"""Tests of what-if: figures, checks, comparisons and sweeps."""
