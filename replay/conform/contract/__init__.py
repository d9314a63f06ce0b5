"""Checks of a service against the contract, by levels."""
