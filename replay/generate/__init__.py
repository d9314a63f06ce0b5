"""Seeded synthetic workloads: the same seed gives the same trace, byte for byte."""
