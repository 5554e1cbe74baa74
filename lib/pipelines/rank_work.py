"""What each rank of a run computes, as rows of cells, and the textbook order that these are or are close to."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from difflib import SequenceMatcher
from functools import lru_cache
from itertools import accumulate, groupby, pairwise, zip_longest
from typing import TYPE_CHECKING, NamedTuple, Self

from lib import Op, Weight, halves
from lib.errors import PuzzleError, RuleError
from lib.ledger.costs import ATTENDING, COMPUTING
from lib.ledger.recomputation import RankState
from lib.ledger.values import Batched

if TYPE_CHECKING:
    from .timetable import Timetable


# --- What a rank computes: which layers, of which microbatches, in which order, and what is recomputed ---

Batches = frozenset[int]

HALVES = {"forward": "F", "backward": "IW", "backward_input": "I", "backward_weight": "W"}
HALVES |= {"keys": "", "attend": "F", "attend_backward": "", "keys_backward": "IW"}
"""What an operation does: forward (F), and the two halves of backward, for the input (I) and for the weight (W)."""


class Part(NamedTuple):
    """A forward, or a half of a backward, of one layer: `half` is F, I or W, `at` the index of the operation. Shares of
    tokens count as microbatches."""

    half: str
    layer: int
    batches: Batches
    step: int
    at: int
    start: int


class RankWork:
    """One rank of a legal run. `parts` has each part once; recomputed forwards are in `again`."""

    def __init__(self, state: RankState) -> None:
        self.state, self.rank, self.ops = state, state.rank, state.ops
        steps = [getattr(state.values[op.outputs[0]], "step", 0) if op.outputs else 0 for op in state.ops]
        self.again = recomputed(state.ops, steps)
        self.shares = 1
        """The shares of tokens that a microbatch has."""
        self.parts = list(self._parts(steps))
        self.layers = frozenset(part.layer for part in self.parts)
        self.batches = frozenset((part.step, batch) for part in self.parts for batch in part.batches)
        self.shards = frozenset(self._shards())

    def _parts(self, steps: Sequence[int]) -> Iterator[Part]:
        for i, op in enumerate(self.ops):
            if op.name in COMPUTING and i not in self.again and op.layer is not None:
                for half in halves(op):
                    step = getattr(self.state.values[half.outputs[0]], "step", steps[i])
                    batches = self._shares(half) if half.name in ATTENDING else half.batches
                    for letter in HALVES[half.name]:
                        yield Part(letter, half.layer or 0, batches, step, i, op.start)

    def _shares(self, op: Op) -> Batches:
        """The shares of tokens of an operation of attention, numbered through all microbatches."""
        inp = self.state.values[op.inputs[0]]
        assert isinstance(inp, Batched)
        self.shares = inp.total
        return frozenset(batch * inp.total + share for batch in op.batches for share in inp.shards)

    def _shards(self) -> Iterator[tuple[int, int]]:
        """The parts of weights that this rank computes with, where it does not have the full weights."""
        for weight in map(self.state.values.__getitem__, self.computed_with()):
            if type(weight) is Weight and not weight.is_complete():
                yield from ((shard, weight.total) for shard in weight.shards)

    def computed_with(self) -> Iterator[int]:
        """The numbers of the weights that this rank computes with."""
        for op in self.ops:
            if op.name in COMPUTING and type(self.state.values[op.inputs[-1]]) is Weight:
                yield op.inputs[-1]

    def named(self, *names: str) -> Iterator[Op]:
        return (op for op in self.ops if op.name in names)


class Grid(NamedTuple):
    """The layout of the ranks that compute: each stage (a set of layers) has a rank for each set of microbatches and
    each shard of the weights."""

    stages: Sequence[frozenset[int]]
    """In the order of their first layers."""
    replicas: Sequence[frozenset[tuple[int, int]]]
    """The (step, microbatch) pairs of each data-parallel replica."""
    tensor: int
    """The ranks that share a stage and its microbatches."""
    ranks: Sequence[RankWork]

    def of(self, stage: int, replica: int) -> list[RankWork]:
        """The ranks of a stage and a replica."""
        layers, batches = self.stages[stage], self.replicas[replica]
        return [work for work in self.ranks if work.layers == layers and work.batches == batches]

    def shares(self) -> tuple[tuple[frozenset[int], int], ...]:
        """The layers of each stage and the number of ranks that share them."""
        return tuple((layers, len(self.ranks) // len(self.stages)) for layers in self.stages)


def grid_of(ranks: Sequence[RankWork]) -> Grid | None:
    """The layout of the ranks; None if a combination of layers, microbatches and shards is missing or occurs twice."""
    places = [(work.layers, work.batches, work.shards) for work in ranks]
    layers, batches = {work.layers for work in ranks}, {work.batches for work in ranks}
    shards = {work.shards for work in ranks}
    if len(set(places)) < len(places) or len(layers) * len(batches) * len(shards) != len(places):
        return None
    stages = sorted(layers, key=lambda some: (min(some), sorted(some)))
    return Grid(stages, sorted(batches, key=sorted), len(shards), ranks)


BACKWARD = frozenset(("backward", "backward_input", "backward_weight"))


def recomputed(ops: Sequence[Op], steps: Sequence[int] = ()) -> set[int]:
    """The indices of forwards that repeat one of the same layer, microbatches and training step. `steps` has the step
    of each operation; without it, a backward separates a forward from the previous step's."""
    again = set()
    done: dict[tuple[int | None, int], frozenset[int]] = {}
    for i, op in ((i, half) for i, whole in enumerate(ops) for half in halves(whole)):
        if op.name != "forward" and op.name not in BACKWARD:
            continue
        key = op.layer, steps[i] if steps else 0
        before = done.get(key, frozenset())
        if op.name == "forward":
            if op.batches and op.batches <= before:
                again.add(i)
            done[key] = before | op.batches
        else:
            done[key] = before - op.batches
    return again


# --- Rows of cells, with stages and microbatches numbered as textbooks do ---


class Cell(NamedTuple):
    """A microbatch in a stage: `half` is F (forward), I or W (the halves of backward)."""

    stage: int
    half: str
    batch: int


def in_halves(row: Sequence[Sequence[tuple[int, str, int]]]) -> list[Cell]:
    """The cells of some slots, with each backward split into its halves."""
    return [Cell(s, half, b) for slot in row for s, op, b in slot for half in ("IW" if op == "B" else op)]


class Row(NamedTuple):
    """What a rank computes in one step, with the time of each cell, in ticks."""

    rank: int
    step: int
    cells: Sequence[Cell]
    starts: Sequence[int]


class Placement(NamedTuple):
    """Which rank has which layers. `kind` is 'contiguous' (a stage on each of `p` ranks), 'looped' (`v` stages on each,
    dealt in turn), 'V' (two stages on each, dealt forth and back), 'waves' (that several times), 'two ways' (a stage on
    two ranks, for microbatches in opposite directions), or 'other'. A contiguous pipeline whose sequences are split
    into `v` shares is 'shares', and one that starts a step during the previous one is 'unflushed'."""

    kind: str
    p: int
    v: int
    stage_of: Sequence[int]
    """The stage of each layer."""


def placement_of(grid: Grid) -> Placement:
    """The stages that the layers form, and how they are placed on the ranks."""
    p = len(grid.stages)
    where = {layer: place for place, layers in enumerate(grid.stages) for layer in layers}
    runs = [(place, len(list(layers))) for place, layers in groupby(where[layer] for layer in sorted(where))]
    folded = [
        run
        for i, (place, n) in enumerate(runs)
        for run in _turn(place, n, 0 < i < len(runs) - 1 and place in (0, p - 1))
    ]
    kind, v = _dealt([place for place, _ in folded], p)
    if kind not in FOLDED:
        folded = runs
        kind, v = _dealt([place for place, _ in runs], p)
    return Placement(kind, p, v, _stages([layers for _, layers in folded]))


FOLDED = ("V", "waves")
"""Placements in which the direction turns on the first and the last rank, where two stages follow each other."""


def _turn(place: int, layers: int, turns: bool) -> list[tuple[int, int]]:
    """The layers of a rank as two stages, if the direction turns there and the layers suffice."""
    half = layers // 2 if turns else 0
    return [(place, layers - half), (place, half)] if half else [(place, layers)]


def _dealt(turn: Sequence[int], p: int) -> tuple[str, int]:
    """The kind of placement, from the positions of the stages' ranks; and the number of stages on each rank."""
    v = len(turn) // p
    if turn == list(range(p)) * v:
        return "looped" if v > 1 else "contiguous", v
    if turn == [*range(p), *reversed(range(p))] * (v // 2):
        return "V" if v == 2 else "waves", v
    return "other", v


def _stages(runs: Sequence[int]) -> list[int]:
    """The stage of each layer, from the layers of each stage."""
    return [stage for stage, layers in enumerate(runs) for _ in range(layers)]


Microbatch = tuple[int, frozenset[int]]
"""A step, and microbatches that are computed together."""


class Ways(NamedTuple):
    """The ranks in two directions, each with its position and its layers' stages."""

    placement: Placement
    ranks: Sequence[RankWork]
    """By position in the first direction."""
    up: frozenset[Microbatch]
    """The microbatches in the opposite direction."""


def two_ways(ranks: Sequence[RankWork]) -> list[Ways] | None:
    """How microbatches travel in two opposite directions in each replica; None if they do not. Each rank of a replica
    computes all of its microbatches."""
    replicas: dict[frozenset[Microbatch], list[RankWork]] = {}
    for work in ranks:
        replicas.setdefault(frozenset((part.step, part.batches) for part in work.parts), []).append(work)
    ways = [_two_ways(replica) for replica in replicas.values()]
    placements = {(way.placement.p, tuple(way.placement.stage_of)) for way in ways if way is not None}
    return [way for way in ways if way is not None] if None not in ways and len(placements) == 1 else None


def _two_ways(ranks: Sequence[RankWork]) -> Ways | None:
    routes: dict[Microbatch, dict[int, int]] = {}
    for work in ranks:
        for part in work.parts:
            if part.half == "F":
                routes.setdefault((part.step, part.batches), {})[part.layer] = work.rank
    ways = sorted({tuple(route[layer] for layer in sorted(route)) for route in routes.values()})
    if len(ways) != 2:
        return None
    down, up = ([(rank, len(list(layers))) for rank, layers in groupby(way)] for way in ways)
    order = [rank for rank, _ in down]
    depths = [layers for _, layers in down]
    if [rank for rank, _ in up] != order[::-1] or [layers for _, layers in up] != depths:
        return None
    if len({*order}) != len(order) or {*order} != {work.rank for work in ranks}:
        return None
    back = frozenset(key for key, route in routes.items() if tuple(route[layer] for layer in sorted(route)) == ways[1])
    by_rank = {work.rank: work for work in ranks}
    placement = Placement("two ways", len(order), 2, _stages(depths))
    return Ways(placement, [by_rank[rank] for rank in order], back)


class Pipeline:
    """One replica of a pipeline, and its `rows`. It is not `regular` if it does what no textbook does: a rank begins a
    step within another, has its own microbatches, or computes one of them within another stage."""

    def __init__(self, ranks: Sequence[tuple[int, RankWork]], placement: Placement, up: Set[Microbatch] = frozenset()):
        """The ranks with their positions, first to last; `up` are the microbatches that begin on the last rank."""
        first, last = ranks[0][1], ranks[-1][1]
        self.placement = placement
        self.regular = True
        self.rows: list[Row] = []
        """By step, and within a step by the position of the rank's first stage; ranks that share a stage are
        adjacent."""
        self.places: list[int] = []
        """For each row, the position of its rank."""
        self._flushes = placement.kind != "unflushed"
        numbers: dict[Microbatch, int] = {}
        for work, begins in ((first, lambda key: key not in up), (last, lambda key: key in up)):
            self._number(work, begins, numbers)
        self.batches = max(numbers.values(), default=-1) + 1
        for place, work in ranks:
            self._read(place, work, numbers)

    @classmethod
    def of_table(cls, table: Timetable) -> Self:
        """The pipeline of a timetable, with times that only count cells."""
        p, ranks_of = table.ranks, table.ranks_of
        both = [tuple(sorted({stage, p - 1 - stage})) for stage in range(table.stages)]
        turn = [ranks_of[stage][0] for stage in range(table.stages)]
        kind, v = ("two ways", 2) if table.copies > 1 and [*ranks_of.values()] == both else _dealt(turn, p)
        pipeline = cls.__new__(cls)
        pipeline.placement = Placement(kind, p, v, range(table.stages))
        pipeline.regular, pipeline.batches, pipeline.places = True, table.batches, [*range(p)]
        pipeline.rows = []
        for rank, row in enumerate(table.rows):
            cells = in_halves(row)
            pipeline.rows.append(Row(rank, 0, cells, range(len(cells))))
        return pipeline

    def _number(self, first: RankWork, begins: Callable[[Microbatch], bool], numbers: dict[Microbatch, int]) -> None:
        """Numbers the microbatches of each step in the order of a first stage; or of all steps if none ends."""
        for part in first.parts:
            key = part.step, part.batches
            if part.half == "F" and part.layer == 0 and key not in numbers and begins(key):
                numbers[key] = sum(step == part.step or not self._flushes for step, _ in numbers)

    def _read(self, place: int, work: RankWork, numbers: Mapping[Microbatch, int]) -> None:
        steps = [part.step if self._flushes else 0 for part in work.parts]
        if steps != sorted(steps):
            self.regular = False
            return
        for step, parts in groupby(zip(steps, work.parts), key=lambda pair: pair[0]):
            cells = list(self._cells([part for _, part in parts], numbers))
            self.rows.append(Row(work.rank, step, [cell for cell, _ in cells], [start for _, start in cells]))
            self.places.append(place)

    def _cells(self, parts: Sequence[Part], numbers: Mapping[Microbatch, int]) -> Iterator[tuple[Cell, int]]:
        """The cells of a rank. Each exists when the last of its layers has been computed."""
        of_cell: dict[Cell, list[int]] = {}
        cells = []
        for part in parts:
            if (part.step, part.batches) not in numbers:
                self.regular = False
                return
            cells.append(Cell(self.placement.stage_of[part.layer], part.half, numbers[part.step, part.batches]))
        for i, cell in enumerate(cells):
            of_cell.setdefault(cell, []).append(i)
        for i, cell in enumerate(cells):
            first, last = of_cell[cell][0], of_cell[cell][-1]
            if i == last:
                between = {(other.stage, other.batch) for other in cells[first:last]}
                self.regular &= between <= {(cell.stage, cell.batch)}
                yield cell, parts[first].start


# --- Textbook orders, and the first difference from one ---


class Names:
    """The names of schedules; the catalog of puzzles maps each to its papers."""

    GPIPE = "GPipe"
    ONE_F_ONE_B = "1F1B"
    EAGER = "eager 1F1B"
    SEQ_1F1B = "Seq1F1B"
    TWO_BW = "2BW"
    INTERLEAVED = "interleaved 1F1B"
    BREADTH_FIRST = "the breadth-first pipeline"
    INTERLEAVED_ZB = "interleaved zero bubble"
    ZB_H1, ZB_H2, ZB_V = "ZB-H1", "ZB-H2", "ZB-V"
    V_MIN, V_HALF = "V-Min", "V-Half"
    DUALPIPE_V = "DualPipeV"
    CHIMERA, DUALPIPE = "Chimera", "DualPipe"
    HANAYO = "Hanayo"
    ZERO_1, ZERO_2 = "ZeRO-1", "ZeRO-2"
    ZERO_1_OR_2 = "ZeRO-1 and ZeRO-2, which are the same with one microbatch on each rank"
    ZERO_3 = "ZeRO-3 (FSDP)"
    HYBRID = "hybrid sharding (HSDP)"
    DATA = "data parallelism"
    WEIGHT_SHARDED = "weight-sharded data parallelism"
    LOCAL_SGD = "local SGD"
    DILOCO, STREAMING_DILOCO = "DiLoCo", "Streaming DiLoCo"
    TENSOR = "tensor parallelism"
    SEQUENCE = "tensor and sequence parallelism"
    EXPERT = "expert parallelism"
    RING, ZIGZAG = "ring attention", "ring attention in zigzag"
    GATHERED_KEYS = "context parallelism with gathered keys"
    ULYSSES = "Ulysses, which exchanges tokens for heads"
    USP = "Ulysses inside a ring (USP)"


Rows = Sequence[Sequence[Cell]]
"""For each position in a pipeline, the cells of its rank."""

IN_BLOCKS = (Names.GPIPE, Names.BREADTH_FIRST)
"""Orders in which microbatches may be taken in any order within a block, such as all forwards of a stage."""

MAX_CELLS = 4000
"""Larger pipelines are not compared with textbook rows."""

NEVER = 10**9
"""The length of an order that cannot be played."""

LEAST_ALIKE = 0.8
"""From this share of equal cells on, a pipeline is called similar to a textbook's."""

ORDERS: Mapping[str, Mapping[str, str]] = {
    "contiguous": {
        Names.GPIPE: "gpipe",
        Names.ONE_F_ONE_B: "one_f_one_b",
        Names.ZB_H1: "zb_h1",
        Names.ZB_H2: "zb_h2",
        Names.EAGER: "eager_1f1b",
    },
    "looped": {
        Names.BREADTH_FIRST: "breadth_first",
        Names.INTERLEAVED: "interleaved",
        Names.INTERLEAVED_ZB: "interleaved_zb",
    },
    "V": {
        Names.ZB_V: "zb_v",
        Names.DUALPIPE_V: "dualpipev",
        Names.V_MIN: "v_min",
        Names.V_HALF: "v_half",
        Names.HANAYO: "hanayo",
    },
    "waves": {Names.HANAYO: "hanayo"},
    "two ways": {Names.CHIMERA: "chimera", Names.DUALPIPE: "dualpipe"},
    "shares": {Names.SEQ_1F1B: "seq1f1b"},
    "unflushed": {Names.TWO_BW: "one_f_one_b"},
}
"""The orders of `lib.pipelines` by kind of placement. If two are equal at a size, the first gives the name."""

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
    rows, m = known.get(Names.ONE_F_ONE_B), pipelines[0].batches
    more = _ahead(pipelines[0].rows[-1].cells) - 1
    if rows is None or pipelines[0].placement.kind != "contiguous" or not 0 < 2 * more < m:
        return None
    longer = [_with_warm_up(row, min(_ahead(row) + more, m)) for row in rows]
    if not all(_has(pipeline, Names.ONE_F_ONE_B, longer) for pipeline in pipelines):
        return None
    return Match(Names.ONE_F_ONE_B, f"with {COUNTS.get(more, str(more))} more warm-up forward{'s' * (more > 1)}")


def _with_warm_up(row: Sequence[Cell], ahead: int) -> list[Cell]:
    """A row of 1F1B with so many forwards before the first backward."""
    forwards, backwards = ([cell for cell in row if (cell.half == "F") == forward] for forward in (True, False))
    order = forwards[:ahead]
    for batch, _ in enumerate(forwards):
        order += [*backwards[2 * batch : 2 * batch + 2], *forwards[ahead + batch : ahead + batch + 1]]
    return order


CAPS: Mapping[str, Callable[[int], int]] = {Names.V_MIN: lambda p: (p + 4) // 3, Names.V_HALF: lambda p: (p + 2) // 2}
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
    """The rows of each order that exists for p ranks, m microbatches and v stages of a rank; none where `orders`
    is withheld, as from a graded schedule."""
    try:
        from . import orders as schedules  # here, since importing it is refused where it is withheld
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
