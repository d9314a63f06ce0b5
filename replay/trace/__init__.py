"""The native trace format: reader and writer."""
