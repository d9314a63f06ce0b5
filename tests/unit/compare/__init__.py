"""Tests of the comparison with recorded decisions."""
