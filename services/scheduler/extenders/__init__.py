"""How extenders are reached: over HTTP as upstream's scheduler does, or over gRPC."""
