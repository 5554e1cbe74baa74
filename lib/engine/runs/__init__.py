"""Runs of a player's class: its devices, their calls, and the streams of an inference loop."""
