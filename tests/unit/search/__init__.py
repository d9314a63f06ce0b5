"""Tests of searches: knobs, and the strategies against brute force."""
