"""Tests of what an API server does to a new pod."""
