"""The cluster around the services: clock, API objects, controllers, pod and node lifecycles."""
