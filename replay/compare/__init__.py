"""Recorded decisions, each judged by a scheduler in the state in which it was taken."""
