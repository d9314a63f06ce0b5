"""The cluster around the services: clock, objects, controllers, pod and node lives."""
