"""All files of a run: their ranks, the steps that they share, the pipelines of the ranks, and one clock for them."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from types import MappingProxyType
from typing import NamedTuple

from lib.errors import PuzzleError, RuleError, Sentences
from lib.ledger.algebra import consecutive, counted
from lib.pipelines import Cell, Timetable
from lib.pipelines.timetable import OPERATIONS, Message, first_incomplete, in_order

from .reading import (
    NAME as DUMP_NAME,
)
from .reading import (
    NameRule,
    RankProfile,
    Source,
    Span,
    clipped,
    is_dump_config,
    is_kineto,
    json_of,
    read_dump,
    read_kineto,
)

# --- An order replayed with any times, each slot as early as possible; and one clock for the ranks that ran it ---

Place = tuple[int, int]
"""The rank and the index of a slot."""


class Arrival(NamedTuple):
    """What a slot receives, and the slot that makes it."""

    made: Place
    message: Message


class Order:
    """A timetable with the messages that each slot receives from other ranks."""

    def __init__(self, table: Timetable) -> None:
        self.table = table
        self.places = {
            cell: (rank, at) for rank, row in enumerate(table.rows) for at, slot in enumerate(row) for cell in slot
        }
        self.arrivals: list[list[list[Arrival]]] = [
            [[Arrival(self.places[message.made], message) for message in table.needs.received(slot)] for slot in row]
            for row in table.rows
        ]
        self.sequence = [*in_order(table.rows, table.needs)]
        """All slots, each after its inputs."""


def replayed(
    order: Order,
    length: Callable[[int, int], float],
    message: float = 0.0,
    host: Mapping[Place, float] = MappingProxyType({}),
) -> list[list[tuple[float, float]]]:
    """The start and the end of each slot, by rank. A slot starts `host` after its rank is free and its inputs have
    arrived. A `message` takes the same time between any two ranks, and no rank's time."""
    times: list[list[tuple[float, float]]] = [[] for _ in order.table.rows]
    for rank, at in order.sequence:
        free = times[rank][-1][1] if at else 0.0
        ready = max((times[source][place][1] + message for (source, place), _ in order.arrivals[rank][at]), default=0.0)
        start = max(free, ready) + host.get((rank, at), 0.0)
        times[rank].append((start, start + length(rank, at)))
    return times


def makespan(times: Sequence[Sequence[tuple[float, float]]]) -> float:
    return max(row[-1][1] for row in times)


KEPT = 0.05
"""Clocks that contradict each other by at most so many ms are not changed."""


@dataclass(frozen=True)
class Clocks:
    """For each rank the offset to add to its times, its uncertainty, in ms, and oddities.

    Nothing is used before it is made: a message from rank a to rank b implies that the offset of b is at least the
    offset of a, plus the end of the cell that made it, minus the start of the cell that uses it. Chains of messages
    imply the same for any two ranks. Each rank takes the middle of its range, the first rank being fixed, so that every
    message stays possible.
    """

    offsets: tuple[float, ...]
    doubt: float = 0.0
    note: str = ""

    @property
    def are_kept(self) -> bool:
        return not any(self.offsets)


def clocks_of(order: Order, spans: Sequence[Sequence[Span]], hosts: Sequence[str], ranks: Sequence[int]) -> Clocks:
    """The offsets of a step's ranks."""
    p = len(spans)
    least = [[-inf] * p for _ in range(p)]
    cells: dict[tuple[int, int], str] = {}
    for rank, row in enumerate(order.arrivals):
        for at, arrivals in enumerate(row):
            for (source, place), message in arrivals:
                gap = spans[source][place].end - spans[rank][at].start
                if gap > least[source][rank]:
                    least[source][rank] = gap
                    cells[source, rank] = (
                        f"{message.used} on rank {ranks[rank]} starts before rank {ranks[source]} ends {message.made}"
                    )
    most = max((gap for row in least for gap in row), default=-inf)
    if most <= KEPT:
        return Clocks((0.0,) * p)
    note = ""
    worst = max(cells, key=lambda pair: least[pair[0]][pair[1]])
    if hosts[0] and len(set(hosts)) == 1:
        note = f"{cells[worst]}, by {most:.2f} ms, and both ran on {hosts[0]}: the reading or its clocks are in error"
    for a, b in cells:
        if (missed := least[a][b] + least[b][a]) > KEPT:
            raise RuleError(
                f"no clocks fit: {cells[a, b]}, and {cells[b, a]}, with any offset by {missed:.2f} ms together; a "
                "clock drifts within the step, so profile again, or fewer microbatches"
            )
    for via in range(p):
        for a in range(p):
            if least[a][via] > -inf:
                for b in range(p):
                    least[a][b] = max(least[a][b], least[a][via] + least[via][b])
    if (missed := max(least[rank][rank] for rank in range(p))) > KEPT:
        raise RuleError(
            f"no clocks fit: around a circle of messages they miss each other by {missed:.2f} ms; a clock drifts"
        )
    offsets = tuple((least[0][rank] - least[rank][0]) / 2 if rank else 0.0 for rank in range(p))
    doubt = max(-(least[a][b] + least[b][a]) / 2 for a, b in cells)
    return Clocks(offsets, max(doubt, 0.0), note)


# --- The files of a run ---

NOT_NAMED = "neither PP:2F5 nor Forward 5, and no messages; 'puzzles profile --hooks torch' names them"

MOST_REFUSED = 20
"""Steps that are left out with a note of their own."""


@dataclass(frozen=True)
class PipelineStep:
    """One step of one pipeline, in ms from its first start, on one clock. `ranks` are the numbers of its rows;
    `outside` is the longest time that a rank spends in the step outside its cells."""

    number: int
    ranks: tuple[int, ...]
    order: Order
    spans: tuple[tuple[Span, ...], ...]
    outside: float
    clocks: Clocks

    @property
    def table(self) -> Timetable:
        return self.order.table

    @property
    def length(self) -> float:
        """From the first start to the last end of a cell, on any rank."""
        return max(span.end for row in self.spans for span in row)


@dataclass(frozen=True)
class Gathered:
    """The files of a run, the complete steps of its pipelines, and what a reader should know."""

    profiles: tuple[RankProfile, ...]
    steps: tuple[PipelineStep, ...]
    notes: tuple[str, ...] = ()


def read_profiles(
    sources: Sequence[Source], rules: Sequence[NameRule] = (), only: Collection[int] | None = None
) -> list[RankProfile]:
    """One profile for each file, by rank; `only` limits the ranks."""
    if not sources:
        raise RuleError(SAYS("no file"))
    profiles: list[RankProfile] = []
    config: Mapping[str, object] | None = None
    for source in sorted(sources, key=lambda source: source.name != "config.json"):
        data = json_of(source)
        if is_kineto(data):
            profiles.append(read_kineto(data, source.name, rules))
        elif is_dump_config(data):
            config = data
        elif config is not None:
            profiles.append(read_dump(data, source.name, config))
        else:
            more = ", and there is no config.json next to it" if DUMP_NAME.fullmatch(source.name) else ""
            raise RuleError(SAYS("no traceEvents", file=source.name, more=more))
        del data
    profiles = sorted(
        (profile for profile in profiles if only is None or profile.rank in only),
        key=lambda profile: (profile.rank, profile.file),
    )
    _require_one_run(profiles, only)
    return profiles


def _require_one_run(profiles: Sequence[RankProfile], only: Collection[int] | None) -> None:
    if not profiles:
        raise RuleError("no file of these ranks is there" if only else "config.json has no pp_rank_0.json next to it")
    by_rank: dict[int, RankProfile] = {}
    for profile in profiles:
        if profile.rank in by_rank:
            raise RuleError(SAYS("second file of rank", file=profile.file, rank=profile.rank))
        by_rank[profile.rank] = profile
    first = profiles[0]
    for profile in profiles:
        if profile.world != first.world:
            raise RuleError(
                SAYS(
                    "other world_size",
                    rank=profile.rank,
                    world=profile.world,
                    first_rank=first.rank,
                    first_world=first.world,
                )
            )
        if profile.kind != first.kind:
            raise RuleError(f"{profile.file} is a {profile.kind}, and {first.file} is a {first.kind}; give one run")
    world, said = first.world or 1 + max(by_rank), "distributedInfo" if first.world else "the names of the files"
    is_alone = only is None and len(profiles) == 1
    wanted = by_rank if is_alone else range(world) if only is None else sorted(only)
    if world > 100_000 or any(rank >= world for rank in by_rank):
        raise RuleError(f"{profiles[-1].file} is of rank {profiles[-1].rank}, and the world has {world} ranks")
    missing = next((rank for rank in wanted if rank not in by_rank), None)
    if missing is not None:
        raise RuleError(SAYS("ranks missing", missing=missing, world=world, said=said, given=numbers_text(by_rank)))


def numbers_text(numbers: Collection[int]) -> str:
    """'0-2, 5'."""
    runs = consecutive(numbers)
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def common_steps(steps_of: Mapping[int, Collection[int]]) -> set[int]:
    """The steps that all ranks have."""
    (first, first_steps), *others = steps_of.items()
    common = set(first_steps).intersection(*steps_of.values())
    if not common:
        rank, steps = next(
            (other for other in others if set(first_steps).isdisjoint(other[1])),
            others[-1] if others else (first, first_steps),
        )
        raise RuleError(
            SAYS(
                "other steps",
                rank=rank,
                steps=numbers_text(steps) or "none",
                first=first,
                first_steps=numbers_text(first_steps) or "none",
            )
        )
    return common


def gathered(profiles: Sequence[RankProfile]) -> Gathered:
    """The steps that all ranks have in full."""
    with_cells = {profile.rank: {n for n, step in profile.steps.items() if step.spans} for profile in profiles}
    empty = [rank for rank, steps in with_cells.items() if not steps]
    guessed = [profile.rank for profile in profiles if profile.notes]
    if empty:
        named = f"no cell is named on rank {numbers_text(empty)}: {NOT_NAMED}"
        raise RuleError(_unnamed([*with_cells]) if guessed else named)
    common = common_steps(with_cells)
    pipelines: list[PipelineStep] = []
    notes = [note for profile in profiles[:1] for note in profile.notes]
    refused: list[str] = []
    every = set().union(*with_cells.values())
    for number in sorted(every):
        try:
            if number not in common:
                rank = next(rank for rank, steps in with_cells.items() if number not in steps)
                raise RuleError(f"step {number} of rank {rank} has no cells")
            pipelines += [_step(number, ranks) for ranks in _pipelines(profiles, number)]
        except PuzzleError as why:
            refused.append(why.problem)
    taken = numbers_text({step.number for step in pipelines})
    if not pipelines:
        raise RuleError(refused[0] if not guessed else _unnamed(guessed))
    notes += [
        f"{why[0].upper()}{why[1:]}; taken: step{'s' if '-' in taken or ',' in taken else ''} {taken}."
        for why in refused[:MOST_REFUSED]
    ]
    if len(refused) > MOST_REFUSED:
        notes.append(f"Left out for such reasons: {counted(len(refused) - MOST_REFUSED, 'more step')}.")
    notes += dict.fromkeys(f"{step.clocks.note}." for step in pipelines if step.clocks.note)
    return Gathered(tuple(profiles), tuple(pipelines), tuple(notes))


def _unnamed(ranks: Sequence[int]) -> str:
    """Why runs of computing between messages are not cells."""
    return (
        f"no cell is named on rank {numbers_text(ranks)}, and messages do not show which cells they are; "
        "'puzzles profile --hooks torch' names them"
    )


def _pipelines(profiles: Sequence[RankProfile], number: int) -> Iterator[list[tuple[RankProfile, list[Span]]]]:
    """The ranks of each pipeline with their spans, which all have a stage and a microbatch."""
    rows = {profile.rank: (profile, _numbered(profile, profile.steps[number].spans, profiles)) for profile in profiles}
    alike: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for rank, (_, spans) in rows.items():
        alike[tuple(sorted({cell.stage for span in spans for cell in span.cells}))].append(rank)
    counts = {len(ranks) for ranks in alike.values()}
    if len(counts) > 1:
        few, many = min(alike, key=lambda stages: len(alike[stages])), max(alike, key=lambda stages: len(alike[stages]))
        raise RuleError(
            f"stage {numbers_text(few)} is on rank {numbers_text(alike[few])}, and stage {numbers_text(many)} on rank "
            f"{numbers_text(alike[many])}; every pipeline has all stages once"
        )
    stages_of = {rank: stages for stages, ranks in alike.items() for rank in ranks}
    groups = {group for profile in profiles for group in profile.groups}
    fits = all(len({stages_of.get(rank) for rank in group} - {None}) == len(group) == len(alike) for group in groups)
    if fits and sorted(rank for group in groups for rank in group) == sorted(rows):
        chosen = sorted(groups)
    else:
        chosen = [tuple(sorted(ranks)) for ranks in zip(*(sorted(ranks) for ranks in alike.values()))]
    for ranks in chosen:
        yield [rows[rank] for rank in sorted(ranks)]


def _numbered(profile: RankProfile, spans: Sequence[Span], profiles: Sequence[RankProfile]) -> list[Span]:
    """Numbers the spans whose stage is their rank's position, or whose microbatch is counted."""
    if all(cell.stage >= 0 and cell.batch >= 0 for span in spans for cell in span.cells):
        return list(spans)
    ranks = profile.groups[0] if profile.groups else [other.rank for other in profiles]
    place, counted = list(ranks).index(profile.rank), defaultdict[tuple[int, str], int](int)

    def numbered(cell: Cell) -> Cell:
        stage = cell.stage if cell.stage >= 0 else place + len(ranks) * (-1 - cell.stage)
        counted[stage, cell.op] += 1
        return Cell(stage, cell.op, cell.batch if cell.batch >= 0 else counted[stage, cell.op] - 1)

    return [span._replace(cells=tuple(map(numbered, span.cells))) for span in spans]


def _step(number: int, rows: Sequence[tuple[RankProfile, list[Span]]]) -> PipelineStep:
    ranks = tuple(profile.rank for profile, _ in rows)
    _require_complete(number, ranks, [spans for _, spans in rows])
    try:
        order = Order(Timetable.of([span.cells for span in spans] for _, spans in rows))
    except PuzzleError as why:
        raise RuleError(f"step {number} is not a step of a pipeline: {why}") from None
    if not any(span.length for _, spans in rows for span in spans):
        raise RuleError(f"step {number} has no cell that takes time; record activities of the CPU, or of the GPU too")
    base = min(profile.base for profile, _ in rows)
    placed = [[span.moved((profile.base - base) / 1e6) for span in spans] for profile, spans in rows]
    clocks = clocks_of(order, placed, [profile.host for profile, _ in rows], ranks)
    placed = [[span.moved(offset) for span in row] for row, offset in zip(placed, clocks.offsets)]
    first = min(span.start for row in placed for span in row)
    spans = tuple(tuple(span.moved(-first) for span in row) for row in placed)
    length = max(span.end for row in spans for span in row)
    marked = max(profile.steps[number].end - profile.steps[number].start for profile, _ in rows)
    return PipelineStep(number, ranks, order, spans, max(0.0, marked - length), clocks)


def _require_complete(number: int, ranks: Sequence[int], rows: Sequence[Sequence[Span]]) -> None:
    """Refuses a step in which a cell is missing."""
    done: dict[tuple[int, int], str] = defaultdict(str)
    rank_of: dict[int, int] = {}
    for rank, row in zip(ranks, rows):
        for cell in (cell for span in row for cell in span.cells):
            done[cell.stage, cell.batch] += cell.op
            rank_of.setdefault(cell.stage, rank)
    place = first_incomplete(done)
    if place is None:
        return
    (stage, batch), has = place, done[place]
    if stage not in rank_of:
        raise RuleError(f"step {number} has no cell of stage {stage}")
    facts = {"number": number, "rank": rank_of[stage], "batch": batch, "stage": stage}
    wanted = "F" if "B" in has else "FIW" if "I" in has else "FB"
    if missing := next((op for op in wanted if op not in has), ""):
        raise RuleError(SAYS("incomplete step", missing=OPERATIONS[missing].replace("its ", ""), **facts))
    raise RuleError(SAYS("cells not once", has=clipped(" ".join(has)), **facts))


SAYS = Sentences(
    {
        "no file": "there is no file to read; give the folder of a run, or a file for each rank",
        "no traceEvents": "{file} is not a profiler trace: it has no traceEvents{more}",
        "second file of rank": "{file} is a second file of rank {rank}; give one run",
        "other world_size": "rank {rank} has another world_size ({world}) than rank {first_rank} ({first_world}); give one run",
        "ranks missing": "no file of rank {missing} of {world} ({said}); profile all ranks, or give --ranks {given} for shares without causes",
        "other steps": "rank {rank} has other steps ({steps}) than rank {first} ({first_steps}); give one run",
        "incomplete step": "step {number} of rank {rank} is incomplete: microbatch {batch} has no {missing} in stage {stage}",
        "cells not once": "step {number} of rank {rank} has {has} for microbatch {batch} in stage {stage}; a step has each cell once",
    }
)
