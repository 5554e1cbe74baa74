"""Redistribution: the minimum-traffic transfer from one layout to another."""
