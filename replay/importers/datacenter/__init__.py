"""Importers of published data-centre traces, whose tables are not Kubernetes objects."""
