"""Queueing hints of upstream's plugins: may an event make a plugin pass a pod it refused."""
