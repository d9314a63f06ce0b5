"""The edge that all services share: codec, errors, server life cycle."""
