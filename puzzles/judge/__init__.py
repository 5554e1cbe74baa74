"""Grading: a player's file in, verdicts out."""
