"""Meters of the engine: bytes sent, flops, calls and live bytes, counted on every transport."""
