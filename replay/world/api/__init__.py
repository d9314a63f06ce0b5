"""The API objects: what an API server would hold, and the events that changes cause."""
