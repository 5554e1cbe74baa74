"""Counts what a pipeline holds in flight: microbatches whose backward is still to come, as papers count memory."""

from collections.abc import Iterable, Sequence

from lib.game.costs import PAIR
from lib.trace.ops import Op, Trace, halves

Piece = tuple[tuple[int, ...], int]
"""A chunk, which is a run of layers that follow each other, and a microbatch."""


def inflight(trace: Trace, m_b: float = 1, m_w: float = 1, chunk: int = 0) -> tuple[float, ...]:
    """For each rank, the most microbatches of a chunk that it holds at once, in the order of its program.

    A piece weighs `m_b` from its forward to the input half of its backward, and then `m_w` to the weight half: the
    M_B and M_W of Qi et al. 2024, section 2.3. A whole backward ends both. A chunk is `chunk` layers; without that, as
    many layers of a rank as follow each other.
    """
    return tuple(_most(ops, m_b, m_w, chunk) for ops in trace.ranks)


def _most(ops: Sequence[Op], m_b: float, m_w: float, chunk: int) -> float:
    chunk_of = _chunks((op.layer for op in ops if op.name in ("forward", PAIR) and op.layer is not None), chunk)
    to_input: dict[Piece, set[int]] = {}
    to_weight: dict[Piece, set[int]] = {}
    most = 0.0
    for op in (half for whole in ops for half in halves(whole)):
        if op.layer not in chunk_of or not op.batches:
            continue
        for batch in op.batches:
            piece = chunk_of[op.layer], batch
            if op.name == "forward":
                to_input.setdefault(piece, set()).add(op.layer)
                to_weight.setdefault(piece, set()).add(op.layer)
            if op.name in ("backward", "backward_input"):
                _done(to_input, piece, op.layer)
            if op.name in ("backward", "backward_weight"):
                _done(to_weight, piece, op.layer)
        most = max(most, m_b * len(to_input) + m_w * len(to_weight.keys() - to_input.keys()))
    return most


def _done(left: dict[Piece, set[int]], piece: Piece, layer: int) -> None:
    layers = left.get(piece, set())
    layers.discard(layer)
    if not layers:
        left.pop(piece, None)


def _chunks(layers: Iterable[int], chunk: int) -> dict[int, tuple[int, ...]]:
    """By layer: the layers of its chunk, or the longest run of a rank's layers that it is in."""
    runs: list[list[int]] = []
    for layer in sorted(set(layers)):
        if runs and layer == runs[-1][-1] + 1 and not (chunk and layer % chunk == 0):
            runs[-1].append(layer)
        else:
            runs.append([layer])
    return {layer: tuple(run) for run in runs for layer in run}
