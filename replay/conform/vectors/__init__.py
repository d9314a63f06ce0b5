"""Golden vectors, recorded from upstream's code, played through running services."""
