"""The sketch of a schedule puzzle: which part of each layer a rank keeps, its batches, and its partners.

It says only where things are, not in which order they are computed, because finding the order is the puzzle.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lib import Size
from puzzles.catalog.fields import Fields

Share = tuple[int, int]
"""The index of a part of a layer, and the number of its parts."""

HOLDS = ("full", "shard", "stage", "nothing")
"""What each rank keeps: every layer, a shard of every layer, the layers of its stage, or what the player decides."""


@dataclass(frozen=True)
class PlaceSketch:
    shares: Mapping[tuple[int, int], Share]
    """By rank and layer, the part that the rank keeps."""
    batches: tuple[str, ...]
    """What each rank reads, in words."""
    talk: str
    """What the ranks tell each other, in words."""
    together: bool
    """True if all of them meet."""
    passes_on: frozenset[int]
    """The ranks that exchange activations with the next one."""
    works: Mapping[int, tuple[int, ...]]
    """The layers that a rank computes, where these are not all."""

    def part(self, rank: int, layer: int) -> Share | None:
        return self.shares.get((rank, layer))

    def computes(self, rank: int, layer: int) -> bool:
        return layer in self.works.get(rank, (layer,))


def read_sketch(fields: Fields, size: Size) -> PlaceSketch:
    """The sketch that a table describes."""
    layers, _, ranks = size
    each, texts = fields.text("each", ""), fields.texts("batches")
    passes = tuple(range(ranks - 1)) if fields.flag("chain") else _numbers(fields, "passes_on", ranks)
    sketch = PlaceSketch(
        _shares(fields, size),
        tuple(texts[rank] if rank < len(texts) else each.replace("{rank}", str(rank)) for rank in range(ranks)),
        fields.text("talk", ""),
        fields.flag("together"),
        frozenset(passes),
        {row.number("rank", least=0): _numbers(row, "layers", layers) for row in fields.tables("works")},
    )
    fields.done()
    return sketch


def _shares(fields: Fields, size: Size) -> dict[tuple[int, int], Share]:
    layers, _, ranks = size
    every = [(rank, layer) for rank in range(ranks) for layer in range(layers)]
    stage = layers // ranks if ranks <= layers else 1
    shards = fields.number("shards", ranks)
    match fields.one_of("holds", HOLDS, "nothing"):
        case "full":
            return dict.fromkeys(every, (0, 1))
        case "shard":
            return {place: (place[0] % shards, shards) for place in every}
        case "stage":
            return {(rank, layer): (0, 1) for rank, layer in every if layer // stage == rank}
    shares: dict[tuple[int, int], Share] = {}
    for row in fields.tables("parts"):
        rank, index, total = row.number("rank", least=0), row.number("part", 0, least=0), row.number("of", 1)
        shares |= {(rank, layer): (index, total) for layer in _numbers(row, "layers", layers)}
        row.done()
    return shares


def _numbers(fields: Fields, name: str, below: int) -> tuple[int, ...]:
    """A list of ranks or layers."""

    def is_right(given: object) -> bool:
        return isinstance(given, list) and all(type(number) is int and 0 <= number < below for number in given)

    return tuple(fields.take(name, f"a list of whole numbers from 0 to {below - 1}", is_right, []))
