"""The transports of extenders: HTTP as upstream's scheduler uses it, or gRPC."""
