"""Tests that start real processes and talk to them over gRPC."""
