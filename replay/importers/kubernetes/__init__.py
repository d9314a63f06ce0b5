"""Importers of Kubernetes objects: recordings, manifests, upstream's performance tests."""
