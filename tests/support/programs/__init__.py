"""Random programs, what they must take, and the coroutine that plays them on a model."""

from __future__ import annotations

from random import Random

from .exchanges import Exchanges
from .writer import Program


def random_program(seed: int) -> Program:
    """A legal program of one to eight ranks, with up to three layers, four microbatches and three steps."""
    writer = Exchanges(Random(seed))
    writer.train()
    writer.exchange()
    return writer.written()
