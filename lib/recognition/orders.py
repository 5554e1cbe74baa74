"""Compares a pipeline with the textbook orders: it has one, or is close to one and first differs at some point."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from difflib import SequenceMatcher
from functools import lru_cache
from itertools import accumulate, groupby, pairwise, zip_longest
from typing import NamedTuple

from lib.errors import PuzzleError, RuleError

from . import names
from .rows import Cell, Pipeline, Row, in_halves

Rows = Sequence[Sequence[Cell]]
"""For each position in a pipeline, the cells of its rank."""

IN_BLOCKS = (names.GPIPE, names.BREADTH_FIRST)
"""Orders in which microbatches may be taken in any order within a block, such as all forwards of a stage."""

MAX_CELLS = 4000
"""Larger pipelines are not compared with textbook rows."""

NEVER = 10**9
"""The length of an order that cannot be played."""

LEAST_ALIKE = 0.8
"""From this share of equal cells on, a pipeline is called similar to a textbook's."""

ORDERS: Mapping[str, Mapping[str, str]] = {
    "contiguous": {
        names.GPIPE: "gpipe",
        names.ONE_F_ONE_B: "one_f_one_b",
        names.ZB_H1: "zb_h1",
        names.ZB_H2: "zb_h2",
        names.EAGER: "eager_1f1b",
    },
    "looped": {
        names.BREADTH_FIRST: "breadth_first",
        names.INTERLEAVED: "interleaved",
        names.INTERLEAVED_ZB: "interleaved_zb",
    },
    "V": {
        names.ZB_V: "zb_v",
        names.DUALPIPE_V: "dualpipev",
        names.V_MIN: "v_min",
        names.V_HALF: "v_half",
        names.HANAYO: "hanayo",
    },
    "waves": {names.HANAYO: "hanayo"},
    "two ways": {names.CHIMERA: "chimera", names.DUALPIPE: "dualpipe"},
    "shares": {names.SEQ_1F1B: "seq1f1b"},
    "unflushed": {names.TWO_BW: "one_f_one_b"},
}
"""The orders of `lib.schedules` by kind of placement. If two are equal at a size, the first gives the name."""

SIZES: Mapping[str, Callable[[int, int], list[int]]] = {
    "looped": lambda m, v: [m, v],
    "waves": lambda m, v: [m, v // 2],
    "shares": lambda m, v: [m // v, v],
}
"""By kind of placement: the further arguments of its orders, from the microbatches and the chunks of a rank."""


class Match(NamedTuple):
    """How ranks share the work along one axis, usually a textbook's order. `difference` is the first difference from
    it, or empty."""

    name: str
    difference: str = ""


def match(pipelines: Sequence[Pipeline]) -> Match | None:
    """The order that all replicas of a pipeline have, or else the nearest one; None if no order is similar."""
    first = pipelines[0]
    (kind, p, v, _), m = first.placement, first.batches
    if not all(pipeline.regular and pipeline.batches == m for pipeline in pipelines):
        return None
    known = textbook(kind, p, m, v)
    for name, rows in known.items():
        if all(_has(pipeline, name, rows) for pipeline in pipelines):
            return Match(name)
    if variant := _of_controlled_memory(pipelines, known) or _longer_warm_up(pipelines, known):
        return variant
    near = max(known, key=lambda name: _alike(first, known[name]), default=None)
    if near is None or _alike(first, known[near]) < LEAST_ALIKE:
        return None
    differing = next(pipeline for pipeline in pipelines if not _has(pipeline, near, known[near]))
    return Match(near, _difference(differing, near, known[near]))


COUNTS = dict(enumerate(("one", "two", "three", "four", "five", "six", "seven", "eight", "nine"), 1))


def _longer_warm_up(pipelines: Sequence[Pipeline], known: Mapping[str, Rows]) -> Match | None:
    """1F1B in which each rank has equally many more forwards before the first backward. If these are at least half of
    all, it is nearer to GPipe."""
    rows, m = known.get(names.ONE_F_ONE_B), pipelines[0].batches
    more = _ahead(pipelines[0].rows[-1].cells) - 1
    if rows is None or pipelines[0].placement.kind != "contiguous" or not 0 < 2 * more < m:
        return None
    longer = [_with_warm_up(row, min(_ahead(row) + more, m)) for row in rows]
    if not all(_has(pipeline, names.ONE_F_ONE_B, longer) for pipeline in pipelines):
        return None
    return Match(names.ONE_F_ONE_B, f"with {COUNTS.get(more, str(more))} more warm-up forward{'s' * (more > 1)}")


def _with_warm_up(row: Sequence[Cell], ahead: int) -> list[Cell]:
    """A row of 1F1B with so many forwards before the first backward."""
    forwards, backwards = ([cell for cell in row if (cell.half == "F") == forward] for forward in (True, False))
    order = forwards[:ahead]
    for batch, _ in enumerate(forwards):
        order += [*backwards[2 * batch : 2 * batch + 2], *forwards[ahead + batch : ahead + batch + 1]]
    return order


CAPS: Mapping[str, Callable[[int], int]] = {names.V_MIN: lambda p: (p + 4) // 3, names.V_HALF: lambda p: (p + 2) // 2}
"""By order in a V, from the ranks: the most microbatches that a rank may hold in its two chunks."""


def _of_controlled_memory(pipelines: Sequence[Pipeline], known: Mapping[str, Rows]) -> Match | None:
    """V-Min or V-Half in another order, if it holds as little and is as fast when all halves take equally long."""
    p, rows = pipelines[0].placement.p, [row for pipeline in pipelines for row in pipeline.rows]
    for name, cap in CAPS.items() if any(_is_split(row.cells) for row in rows) else ():
        is_small = name in known and cap(p) < p and all(_most_held(row.cells) <= 2 * cap(p) for row in rows)
        if is_small and all(_is_as_fast(pipeline, known[name]) for pipeline in pipelines):
            return Match(name)
    return None


def _is_as_fast(pipeline: Pipeline, rows: Rows) -> bool:
    """True if no step takes longer than a textbook's when all halves take equally long."""
    for step in {row.step for row in pipeline.rows}:
        of_step = {place: row for row, place in zip(pipeline.rows, pipeline.places) if row.step == step}
        wanted = [_without_unused(rows[place], row) for place, row in of_step.items()]
        if _length([row.cells for row in of_step.values()]) > _length(wanted):
            return False
    return True


def _length(rows: Rows) -> int:
    """The slots until the end, where each cell takes one slot and waits for the previous stage."""
    ends: dict[Cell, int] = {}
    left, clocks = [deque(row) for row in rows], [0] * len(rows)
    last = max(cell.stage for row in rows for cell in row)
    while any(left):
        before = len(ends)
        for place, row in enumerate(left):
            while row and (needed := _before(row[0], last)) <= ends.keys():
                cell = row.popleft()
                ends[cell] = clocks[place] = 1 + max(clocks[place], *map(ends.__getitem__, needed), 0)
        if len(ends) == before:
            return NEVER
    return max(clocks)


def _before(cell: Cell, last: int) -> set[Cell]:
    """The cells for which a cell waits."""
    stage, half, batch = cell
    if half == "F":
        return {Cell(stage - 1, "F", batch)} if stage else set()
    if half == "W" and stage:
        return {Cell(stage, "I", batch)}
    return {Cell(stage, "F", batch)} | ({Cell(stage + 1, "I", batch)} if stage < last else set())


def _most_held(cells: Sequence[Cell]) -> int:
    """The most microbatches between their forward and their weight half, in all chunks."""
    changes = [{"F": 1, "W": -1}.get(cell.half, 0) for cell in cells]
    return max(accumulate(changes), default=0)


@lru_cache(maxsize=64)
def textbook(kind: str, p: int, m: int, v: int) -> Mapping[str, Rows]:
    """The rows of each order that exists for p ranks, m microbatches and v stages of a rank; none where `lib.schedules`
    is withheld, as from a graded schedule."""
    try:
        from lib import schedules
    except PuzzleError:
        return {}
    books, sizes = {}, SIZES[kind](m, v) if kind in SIZES else [m]
    for name, order in ORDERS.get(kind, {}).items() if m > 1 and p * m * v <= MAX_CELLS else ():
        try:
            table = getattr(schedules, order)(p, *sizes)
        except RuleError:  # some orders need a multiple of p microbatches, or 2p of them
            continue
        books[name] = [in_halves(row) for row in table.rows]
    return books


def _has(pipeline: Pipeline, name: str, rows: Rows) -> bool:
    """True if each rank has the order."""
    for row, place in zip(pipeline.rows, pipeline.places):
        wanted = _without_unused(rows[place], row)
        same = _blocks(wanted) == _blocks(row.cells) if name in IN_BLOCKS else wanted == row.cells
        if not same:
            return False
    return True


def _without_unused(wanted: Sequence[Cell], row: Row) -> Sequence[Cell]:
    """A textbook's row without the halves of backward that a rank never computes: the gradient of the model's input,
    and what a stage of frozen layers leaves out."""
    computed = {cell[:2] for cell in row.cells}
    return [cell for cell in wanted if cell.half == "F" or cell[:2] in computed]


def _blocks(cells: Sequence[Cell]) -> list[tuple[int, bool, frozenset[int], bool]]:
    """For each run of cells of one stage and direction: the cells, its microbatches, and whether all its backwards are
    in one piece."""
    runs = []
    for (stage, forward), run in groupby(cells, key=lambda cell: (cell.stage, cell.half == "F")):
        some = list(run)
        batches = [batch for batch, _ in groupby(cell.batch for cell in some)]
        runs.append((stage, forward, frozenset(batches), len(batches) == len(set(batches))))
    return runs


def _alike(pipeline: Pipeline, rows: Rows) -> float:
    """The share of cells that equal the textbook's; a backward in one piece counts once."""
    shares = []
    for row, place in zip(pipeline.rows, pipeline.places):
        wanted, computed = _without_unused(rows[place], row), row.cells
        if not _is_split(wanted) and not _is_split(computed):
            wanted, computed = ([cell for cell in cells if cell.half != "W"] for cells in (wanted, computed))
        shares.append(SequenceMatcher(None, wanted, computed, autojunk=False).ratio())
    return sum(shares) / len(shares)


def _is_split(cells: Sequence[Cell]) -> bool:
    """True if some other cell is between the halves of a backward."""
    return any(cell.half == "I" and after != (cell.stage, "W", cell.batch) for cell, after in pairwise(cells))


def _difference(pipeline: Pipeline, name: str, rows: Rows) -> str:
    """The earliest difference. Where microbatches may change places, other differences come first."""
    differences = []
    for row, place in zip(pipeline.rows, pipeline.places):
        wanted = _without_unused(rows[place], row)
        index = _first_other(wanted, row.cells, blocks=name in IN_BLOCKS)
        if index is not None:
            start = row.starts[index] if index < len(row.starts) else row.starts[-1]
            differences.append((start, row.rank, _words(row, wanted, index)))
    return min(differences)[2] if differences else ""


def _first_other(wanted: Sequence[Cell], cells: Sequence[Cell], blocks: bool) -> int | None:
    """Where two rows differ first; None if they are the same."""
    pairs = list(zip_longest(wanted, cells))
    if blocks:
        kinds = [tuple(cell and cell[:2] for cell in pair) for pair in pairs]
        if (index := next((i for i, (a, b) in enumerate(kinds) if a != b), None)) is not None:
            return index
    return next((i for i, (a, b) in enumerate(pairs) if a != b), None)


def _words(row: Row, wanted: Sequence[Cell], index: int) -> str:
    step = f" in step {row.step}" if row.step else ""
    ahead, theirs = _ahead(row.cells), _ahead(wanted)
    if ahead != theirs and index >= min(ahead, theirs):
        many = "one forward" if abs(ahead - theirs) == 1 else f"{abs(ahead - theirs)} forwards"
        return f"rank {row.rank} runs {many} too {'many' if ahead > theirs else 'few'} before its first backward{step}"
    split = _is_split(row.cells)
    if index >= len(row.cells):
        return f"rank {row.rank} leaves out {_named(wanted[index], wanted, split)}{step}"
    if index >= len(wanted):
        return f"rank {row.rank} also runs {_named(row.cells[index], row.cells, split)}{step}"
    instead = _named(wanted[index], wanted, split)
    return f"rank {row.rank} runs {_named(row.cells[index], row.cells, split)} instead of {instead}{step}"


def _ahead(cells: Sequence[Cell]) -> int:
    """The forwards before the first backward."""
    return next((i for i, cell in enumerate(cells) if cell.half != "F"), len(cells))


def _named(cell: Cell, cells: Sequence[Cell], split: bool) -> str:
    """'the backward of microbatch 3', with its stage where the rank has several."""
    noun = {"F": "forward", "I": "input gradient", "W": "weight gradient"}[cell.half]
    stage = f" in stage {cell.stage}" if len({other.stage for other in cells}) > 1 else ""
    return f"the {noun if split or noun == 'forward' else 'backward'} of microbatch {cell.batch}{stage}"
