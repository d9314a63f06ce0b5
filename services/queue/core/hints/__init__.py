"""Queueing hints of upstream's plugins: whether an event may make a plugin pass a pod."""
