"""How an exception becomes one sentence: see `inside/failure.py`, which runs beside the player's code."""

from .inside.failure import Failure, of_crash, of_refusal, of_source, plain

__all__ = ["Failure", "of_crash", "of_refusal", "of_source", "plain"]
