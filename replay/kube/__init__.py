"""Kubernetes objects as JSON: kinds, documents, and recorded changes."""
