"""Golden vectors, recorded from upstream's code, against running services."""
