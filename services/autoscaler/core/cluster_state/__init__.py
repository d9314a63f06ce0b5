"""What the autoscaler knows of its groups: readiness, upcoming nodes, open requests, backoff."""
