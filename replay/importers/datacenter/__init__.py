"""Importers of data-centre traces, whose tables are not Kubernetes objects."""
