"""Importers of other formats, one file each."""
