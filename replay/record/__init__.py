"""Recording a live cluster: its API server's lists and watches, what its pods use, as a trace."""
