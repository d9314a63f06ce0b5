"""Tests of services/rpc."""
