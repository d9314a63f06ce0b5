"""Rollouts: the rules of rolling updates, and what the end of a run notes about them."""
