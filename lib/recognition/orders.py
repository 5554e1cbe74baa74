"""Compares a pipeline with the textbook orders: it has one, or is near one, and differs there first."""

from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from functools import lru_cache
from itertools import groupby, pairwise, zip_longest
from typing import NamedTuple

from lib.errors import PuzzleError, RuleError

from . import names
from .rows import Cell, Pipeline, Row

Rows = Sequence[Sequence[Cell]]
"""For each place of a pipeline the cells of its rank."""

IN_BLOCKS = (names.GPIPE, names.BREADTH_FIRST)
"""Orders in which microbatches may be taken in any order within a block, such as all forwards of a stage."""

MAX_CELLS = 4000
"""Of a larger pipeline no textbook's rows are made, and no nearest one is looked for."""

LEAST_ALIKE = 0.8
"""From this share of equal cells on, a pipeline is said to be like a textbook's."""

ORDERS: Mapping[str, Mapping[str, str]] = {
    "contiguous": {
        names.GPIPE: "gpipe",
        names.ONE_F_ONE_B: "one_f_one_b",
        names.ZB_H1: "zb_h1",
        names.ZB_H2: "zb_h2",
    },
    "looped": {
        names.BREADTH_FIRST: "breadth_first",
        names.INTERLEAVED: "interleaved",
        names.INTERLEAVED_ZB: "interleaved_zb",
    },
    "V": {names.ZB_V: "zb_v", names.DUALPIPE_V: "dualpipev", names.V_MIN: "v_min", names.V_HALF: "v_half"},
}
"""By kind of placement: the orders of `lib.schedules`. Of two that are the same at a size, the first gives the name."""


class Match(NamedTuple):
    """A textbook's order. `difference` is the first thing that is otherwise; empty if there is none."""

    name: str
    difference: str = ""


def match(pipelines: Sequence[Pipeline]) -> Match | None:
    """The order that all replicas of a pipeline have, or else the nearest; None if it is like none."""
    first = pipelines[0]
    (kind, p, v, _), m = first.placement, first.batches
    if not all(one.regular and one.batches == m for one in pipelines):
        return None
    known = textbook(kind, p, m, v)
    for name, rows in known.items():
        if all(_has(one, name, rows) for one in pipelines):
            return Match(name)
    near = max(known, key=lambda name: _alike(first, known[name]), default=None)
    if near is None or _alike(first, known[near]) < LEAST_ALIKE:
        return None
    differing = next(one for one in pipelines if not _has(one, near, known[near]))
    return Match(near, _difference(differing, near, known[near]))


@lru_cache(maxsize=64)
def textbook(kind: str, p: int, m: int, v: int) -> Mapping[str, Rows]:
    """The rows of each order that exists for p ranks, m microbatches and v stages of a rank; none where `lib.schedules`
    is withheld, as from a graded schedule."""
    try:
        from lib import schedules
    except PuzzleError:
        return {}
    found = {}
    for name, order in ORDERS.get(kind, {}).items() if m > 1 and p * m * v <= MAX_CELLS else ():
        try:
            table = getattr(schedules, order)(p, m, *([v] if kind == "looped" else []))
        except RuleError:  # some orders need a multiple of p microbatches, or 2p of them
            continue
        found[name] = [[*_in_halves(row)] for row in table.rows]
    return found


def _in_halves(row: Sequence[Sequence[tuple[int, str, int]]]) -> Iterator[Cell]:
    """The cells of some slots, with each backward as its two halves."""
    for slot in row:
        for stage, op, batch in slot:
            yield from (Cell(stage, half, batch) for half in ("IW" if op == "B" else op))


def _has(pipeline: Pipeline, name: str, rows: Rows) -> bool:
    """True if each rank has the order."""
    for row, place in zip(pipeline.rows, pipeline.places):
        wanted = _without_unused(rows[place], row)
        same = _blocks(wanted) == _blocks(row.cells) if name in IN_BLOCKS else wanted == row.cells
        if not same:
            return False
    return True


def _without_unused(wanted: Sequence[Cell], row: Row) -> Sequence[Cell]:
    """A textbook's row as it is for a rank that leaves out the gradient of the model's input, which nobody needs."""
    if any(cell.stage == 0 and cell.half == "I" for cell in row.cells):
        return wanted
    return [cell for cell in wanted if cell.stage or cell.half != "I"]


def _blocks(cells: Sequence[Cell]) -> list[tuple[int, bool, frozenset[int], bool]]:
    """For each run of cells of one stage and direction: these, its microbatches, and whether none of its backwards is
    taken apart."""
    runs = []
    for (stage, forward), run in groupby(cells, key=lambda cell: (cell.stage, cell.half == "F")):
        some = list(run)
        each = [batch for batch, _ in groupby(cell.batch for cell in some)]
        runs.append((stage, forward, frozenset(each), len(each) == len(set(each))))
    return runs


def _alike(pipeline: Pipeline, rows: Rows) -> float:
    """The share of cells that are as in the textbook's rows; a backward in one piece counts once."""
    shares = []
    for row, place in zip(pipeline.rows, pipeline.places):
        wanted, mine = _without_unused(rows[place], row), row.cells
        if not _is_split(wanted) and not _is_split(mine):
            wanted, mine = ([cell for cell in cells if cell.half != "W"] for cells in (wanted, mine))
        shares.append(SequenceMatcher(None, wanted, mine, autojunk=False).ratio())
    return sum(shares) / len(shares)


def _is_split(cells: Sequence[Cell]) -> bool:
    """True if some other cell is between the halves of a backward."""
    return any(cell.half == "I" and after != (cell.stage, "W", cell.batch) for cell, after in pairwise(cells))


def _difference(pipeline: Pipeline, name: str, rows: Rows) -> str:
    """The difference that comes first in time. Where microbatches may change places, others count before that."""
    found = []
    for row, place in zip(pipeline.rows, pipeline.places):
        wanted = _without_unused(rows[place], row)
        at = _first_other(wanted, row.cells, blocks=name in IN_BLOCKS)
        if at is not None:
            start = row.starts[at] if at < len(row.starts) else row.starts[-1]
            found.append((start, row.rank, _words(row, wanted, at)))
    return min(found)[2] if found else ""


def _first_other(wanted: Sequence[Cell], mine: Sequence[Cell], blocks: bool) -> int | None:
    """Where two rows differ first; None if they are the same."""
    pairs = list(zip_longest(wanted, mine))
    if blocks:
        kinds = [tuple(cell and cell[:2] for cell in pair) for pair in pairs]
        if (at := next((i for i, (a, b) in enumerate(kinds) if a != b), None)) is not None:
            return at
    return next((i for i, (a, b) in enumerate(pairs) if a != b), None)


def _words(row: Row, wanted: Sequence[Cell], at: int) -> str:
    step = f" in step {row.step}" if row.step else ""
    mine, theirs = _ahead(row.cells), _ahead(wanted)
    if mine != theirs and at >= min(mine, theirs):
        many = "one forward" if abs(mine - theirs) == 1 else f"{abs(mine - theirs)} forwards"
        return f"rank {row.rank} runs {many} too {'many' if mine > theirs else 'few'} before its first backward{step}"
    split = _is_split(row.cells)
    if at >= len(row.cells):
        return f"rank {row.rank} leaves out {_named(wanted[at], wanted, split)}{step}"
    if at >= len(wanted):
        return f"rank {row.rank} also runs {_named(row.cells[at], row.cells, split)}{step}"
    instead = _named(wanted[at], wanted, split)
    return f"rank {row.rank} runs {_named(row.cells[at], row.cells, split)} instead of {instead}{step}"


def _ahead(cells: Sequence[Cell]) -> int:
    """The forwards before the first backward."""
    return next((i for i, cell in enumerate(cells) if cell.half != "F"), len(cells))


def _named(cell: Cell, cells: Sequence[Cell], split: bool) -> str:
    """'the backward of microbatch 3', with its stage where the rank has several."""
    noun = {"F": "forward", "I": "input gradient", "W": "weight gradient"}[cell.half]
    stage = f" in stage {cell.stage}" if len({one.stage for one in cells}) > 1 else ""
    return f"the {noun if split or noun == 'forward' else 'backward'} of microbatch {cell.batch}{stage}"
