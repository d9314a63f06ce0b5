"""Kubernetes objects as frozen values, and the pure rules over them."""
