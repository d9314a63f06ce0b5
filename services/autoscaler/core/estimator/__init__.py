"""Estimates how many nodes of a group the pending pods need."""
