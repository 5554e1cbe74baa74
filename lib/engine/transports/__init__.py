"""Transports: what carries arrays between devices."""
