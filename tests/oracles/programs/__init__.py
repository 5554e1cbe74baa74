"""Random programs, what they must take, and the coroutine that plays them on a model."""

from random import Random

from .exchanges import Exchanges
from .writer import Program


def random_program(seed: int, frozen: bool = False, whole: bool = False) -> Program:
    """A legal program of one to eight ranks, with up to three layers, four microbatches and three steps; with frozen
    layers, or where updates need full matrices."""
    writer = Exchanges(Random(seed), frozen, whole)
    writer.train()
    writer.exchange()
    return writer.written()
