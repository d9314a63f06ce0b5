"""Importers of other formats: one module, with its IMPORTER, for each format."""
