"""Schedules with groups and overlap that reach known figures."""
