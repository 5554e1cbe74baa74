"""Colours of the operations: by layer, by microbatch or by operation, and the bar that shows a chunk."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from drawing.palette import INK, OPERATIONS, PAPER, SOFT, STROKE, batch_colour, layer_colour, mix
from lib import PuzzleError, halves
from lib.values.algebra import consecutive

from .marks import LaneMarks, Mark

COLOURS = ("layer", "microbatch", "operation")
"""What the colours may show."""

HOLLOW = 2.0
"""Border width of a hollow shape; if the shape is narrow, only the border is drawn."""

Paint = tuple[str, str, float]
"""Fill, stroke and stroke width."""


def tinted(hue: str) -> Paint:
    return mix(hue, PAPER, 0.62), PAPER, 0.5


def full(hue: str) -> Paint:
    return hue, PAPER, 0.5


PAINTS: dict[str, Callable[[str], Paint]] = {
    "forward": tinted,
    "loss": lambda hue: (INK, PAPER, 0.8),
    "backward": full,
    "backward_input": full,
    "backward_weight": lambda hue: (mix(hue, PAPER, 0.3), PAPER, 0.5),
    "outer_update": lambda hue: (mix(hue, PAPER, 0.6), mix(hue, INK, 0.15), HOLLOW),
    "tier_update": lambda hue: (mix(hue, PAPER, 0.6), mix(hue, INK, 0.15), HOLLOW),
    "update": lambda hue: (PAPER, mix(hue, INK, 0.15), HOLLOW),
}
"""From the hue of an operation to its paint; all others are WIRE."""

WIRE: Paint = STROKE, PAPER, 0.5


LIKE = {"keys": "forward", "attend": "forward", "attend_backward": "backward_input", "keys_backward": "backward_weight"}
"""Operations of attention, and the operations whose colour they have."""


def require_colour(by: str) -> None:
    if by not in COLOURS:
        raise PuzzleError(f"colour is {', '.join(map(repr, COLOURS[:-1]))} or {COLOURS[-1]!r}; got {by!r}")


@dataclass(frozen=True)
class Colouring:
    """What the colours of a run show, and how its boxes are labelled."""

    by: str
    layers: int
    bars: Mapping[tuple[int, int], float]
    """By rank and layer: the length of the bar that marks its chunk, as a share of the box; empty without chunks."""
    varied: frozenset[int]
    """The ranks that compute more than one layer."""

    @classmethod
    def of(cls, by: str, layers: int, lanes: Iterable[LaneMarks]) -> Colouring:
        """The colouring of a run."""
        computed = {
            lane.rank: {
                op.layer
                for mark in lane.marks
                for op in halves(mark.op)
                if op.name == "forward" and op.layer is not None
            }
            for lane in lanes
        }
        varied = frozenset(rank for rank, own in computed.items() if len(own) > 1)
        return cls(by, layers, chunk_bars(computed) if by != "layer" else {}, varied)

    @property
    def shows_batches(self) -> bool:
        """True if a box is labelled with its microbatch first."""
        return self.by != "layer"

    def paint(self, mark: Mark) -> Paint:
        """Fill, stroke and stroke width of a mark."""
        name = LIKE.get(mark.op.name, mark.op.name)
        if self.by == "operation" and name in OPERATIONS:
            return full(OPERATIONS[name])
        return PAINTS[name](self.hue(mark)) if name in PAINTS else WIRE

    def hue(self, mark: Mark) -> str:
        """The full colour of a mark. Of several microbatches the first counts."""
        if self.by == "layer":
            return layer_colour(mark.op.layer or 0, self.layers)
        if self.by == "microbatch" and mark.op.batches:
            return batch_colour(min(mark.op.batches))
        return SOFT

    def bar(self, mark: Mark) -> float:
        """The length of the bar on a mark, as a share of its box: 0 in the first chunk of a rank, 1 in the last."""
        shows = mark.op.layer is not None and LIKE.get(mark.op.name, mark.op.name) in OPERATIONS
        return self.bars.get((mark.rank, mark.op.layer or 0), 0.0) if shows else 0.0

    def layer_text(self, mark: Mark) -> str:
        """The layer's number, if its rank has several layers."""
        return mark.layer_text if mark.rank in self.varied else ""


def chunk_bars(computed: Mapping[int, Iterable[int]]) -> dict[tuple[int, int], float]:
    """By rank and layer: the position of its chunk between the first of its rank (0) and the last (1).

    A chunk is a run of consecutive layers. If ranks have several, the shortest run is the size of all, because the last
    rank of a V has two adjacent chunks.
    """
    runs = {rank: consecutive(layers) for rank, layers in computed.items()}
    if max(map(len, runs.values()), default=0) < 2:
        return {}
    size = min(len(run) for found in runs.values() for run in found)
    return {
        (rank, layer): i / (len(chunks) - 1)
        for rank, found in runs.items()
        if len(chunks := [run[at : at + size] for run in found for at in range(0, len(run), size)]) > 1
        for i, chunk in enumerate(chunks)
        for layer in chunk
    }
