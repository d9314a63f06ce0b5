"""Vectors of the cluster autoscaler: the cloud and the cluster of their scripts, and the player."""
