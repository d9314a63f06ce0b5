"""Tests of spans: sampling and sinks."""
