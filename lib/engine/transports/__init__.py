"""Transports carry arrays between devices."""
