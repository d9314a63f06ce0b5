"""Explains why a pod was bound, refused or waits, at one moment of a run."""
