"""What each pipeline schedule is by definition, as conditions on the order of a rank's operations.

Written from the papers, and independent of `lib.pipelines`: a condition counts what a rank has done before each
operation, and never makes an order to compare with. A rank's operations are (half, stage, microbatch) with the halves
F, I and W, where a whole backward is an I with its W right after it.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby, pairwise

from lib import Trace

Cell = tuple[str, int, int]
Rank = Sequence[Cell]
Definition = Callable[[Rank, int, int, int], bool]
"""From a rank's operations, its number, the ranks and the microbatches."""

HALVES = {"forward": "F", "backward": "IW", "backward_input": "I", "backward_weight": "W"}


def operations(trace: Trace, depth: int = 1) -> list[list[Cell]]:
    """For each rank what it computes, of the first layer of each stage, for microbatches by their number."""
    return [
        [
            (half, op.layer // depth, next(iter(op.batches)))
            for op in ops
            for half in HALVES.get(op.name, "")
            if op.layer is not None and op.layer % depth == 0
        ]
        for ops in trace.ranks
    ]


def counts_before(cells: Rank, half: str) -> list[tuple[Cell, int, int]]:
    """Each operation of a half, with the forwards and the input halves before it."""
    found, forwards, inputs = [], 0, 0
    for cell in cells:
        if cell[0] == half:
            found.append((cell, forwards, inputs))
        forwards += cell[0] == "F"
        inputs += cell[0] == "I"
    return found


def in_order(cells: Rank) -> bool:
    """True if each half of each stage takes the microbatches by their numbers."""
    kinds = {cell[:2] for cell in cells}
    return all([c[2] for c in cells if c[:2] == kind] == sorted(c[2] for c in cells if c[:2] == kind) for kind in kinds)


def whole(cells: Rank) -> bool:
    """True if the weight half follows each input half at once."""
    return all(
        i + 1 < len(cells) and cells[i + 1] == ("W", *cell[1:]) for i, cell in enumerate(cells) if cell[0] == "I"
    )


def one_stage(cells: Rank) -> bool:
    return len({cell[1] for cell in cells}) == 1


def gpipe(cells: Rank, r: int, p: int, m: int) -> bool:
    """No forward after a backward."""
    forwards = [cell[0] == "F" for cell in cells]
    return one_stage(cells) and whole(cells) and forwards == sorted(forwards, reverse=True)


def ahead(cells: Rank, warm_up: int, m: int) -> bool:
    """One forward and one backward in turn after so many forwards."""
    return all(f == min(m, warm_up + k + 1) for k, (_, f, _) in enumerate(counts_before(cells, "I")))


def late(cells: Rank, by: int, m: int) -> bool:
    """The weight half of microbatch j right after the input half of microbatch j + by, or after the last."""
    right = all(i == min(m, j + by + 1) for j, (_, _, i) in enumerate(counts_before(cells, "W")))
    at_once = all(before[0] != "F" for before, cell in pairwise(cells) if cell[0] == "W")
    return right and at_once


def one_f_one_b(cells: Rank, r: int, p: int, m: int) -> bool:
    return one_stage(cells) and whole(cells) and in_order(cells) and ahead(cells, p - r - 1, m)


def zb_h1(cells: Rank, r: int, p: int, m: int) -> bool:
    return one_stage(cells) and in_order(cells) and ahead(cells, p - r - 1, m) and late(cells, r, m)


def zb_h2(cells: Rank, r: int, p: int, m: int) -> bool:
    return one_stage(cells) and in_order(cells) and ahead(cells, 2 * (p - r) - 2, m) and late(cells, 2 * r, m)


def interleaved(cells: Rank, r: int, p: int, m: int) -> bool:
    """Megatron-LM's order: g microbatches of a chunk at a time, and a warm-up of 2 (p - r - 1) + (v - 1) g forwards. g
    is p, or in PyTorch the microbatches of each of m // p rounds."""
    g = m // max(1, m // p)
    v = len({cell[1] for cell in cells})
    forwards = [cell for cell in cells if cell[0] == "F"]
    backwards = [cell for cell in cells if cell[0] == "I"]
    turns = [k // g % v for k in range(m * v)]
    return (
        m % g == 0
        and all(stage % p == r for _, stage, _ in cells)
        and whole(cells)
        and in_order(cells)
        and [stage // p for _, stage, _ in forwards] == turns
        and [v - 1 - stage // p for _, stage, _ in backwards] == turns
        and ahead(cells, 2 * (p - r - 1) + (v - 1) * g, m * v)
    )


def breadth_first(cells: Rank, r: int, p: int, m: int) -> bool:
    """All microbatches of a stage before the next stage, forward and back."""
    blocks = [block for block, _ in groupby((cell[0] == "F", cell[1]) for cell in cells)]
    stages = sorted({cell[1] for cell in cells})
    wanted = [(True, stage) for stage in stages] + [(False, stage) for stage in reversed(stages)]
    return all(stage % p == r for stage in stages) and whole(cells) and blocks == wanted


def zb_v(cells: Rank, r: int, p: int, m: int) -> bool:
    """Two stages in a V; 2 (p - r) - 1 forwards of the first before any other; at most 2p chunks held; in order."""
    held: set[tuple[int, int]] = set()
    most = 0
    for half, stage, batch in cells:
        (held.discard if half == "W" else held.add)((stage, batch))
        most = max(most, len(held))
    warm_up = min(m, 2 * (p - r) - 1)
    return (
        {cell[1] for cell in cells} == {r, 2 * p - 1 - r}
        and in_order(cells)
        and [cell[:2] for cell in cells[:warm_up]] == [("F", r)] * warm_up
        and cells[warm_up][:2] != ("F", r)
        and most <= 2 * p
    )


def eager(cells: Rank, r: int, p: int, m: int) -> bool:
    return one_stage(cells) and whole(cells) and in_order(cells) and ahead(cells, 2 * (p - r - 1), m)


def hanayo(cells: Rank, r: int, p: int, m: int) -> bool:
    """One wave: of each group of p microbatches one starts every second slot, and goes there and back in 4p slots."""
    slots = [
        4 * p * (batch // p) + 2 * (batch % p) + (stage if half == "F" else 4 * p - 1 - stage)
        for half, stage, batch in cells
        if half != "W"
    ]
    return {cell[1] for cell in cells} == {r, 2 * p - 1 - r} and whole(cells) and slots == sorted({*slots})


def holding(share: int) -> Definition:
    """A V in which no rank holds more than 2 floor((p + 2) / 2) chunks (V-Half), or 2 floor((p + 4) / 3) (V-Min)."""

    def holds_little(cells: Rank, r: int, p: int, m: int) -> bool:
        held: set[tuple[int, int]] = set()
        most = 0
        for half, stage, batch in cells:
            (held.discard if half == "W" else held.add)((stage, batch))
            most = max(most, len(held))
        return {cell[1] for cell in cells} == {r, 2 * p - 1 - r} and most <= 2 * ((p + 2 * share - 2) // share)

    return holds_little


DEFINITIONS: Mapping[str, Definition] = {
    "GPipe": gpipe,
    "1F1B": one_f_one_b,
    "ZB-H1": zb_h1,
    "ZB-H2": zb_h2,
    "interleaved 1F1B": interleaved,
    "the breadth-first pipeline": breadth_first,
    "ZB-V": zb_v,
    "eager 1F1B": eager,
    "Hanayo": hanayo,
    "V-Half": holding(2),
    "V-Min": holding(3),
}

NECESSARY = frozenset(("ZB-V", "V-Half", "V-Min"))
"""Definitions that others may meet as well."""


def holds(name: str, ranks: Sequence[Rank], p: int, m: int) -> bool:
    """True if all ranks meet a definition."""
    return all(DEFINITIONS[name](cells, r, p, m) for r, cells in enumerate(ranks))
