"""The scheduling queue service."""
