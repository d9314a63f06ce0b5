"""Kubernetes objects as values, and the pure rules over them."""
