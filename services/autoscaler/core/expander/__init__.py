"""Chooses the node group to scale up from several options."""
