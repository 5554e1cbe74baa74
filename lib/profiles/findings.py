"""What is odd about a step: a slow rank, slow cells, a late host. Each with its cell and what it costs."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from statistics import median
from typing import NamedTuple

from lib.schedules import Cell

from .accounting import Accounting, Idle

SLOW_RANK = 0.08
"""A rank is slow that computes by this share longer than the median rank."""

SLOW_CELL, SLOW_CELL_COST = 1.5, 0.02
"""A cell is slow that takes so many times its median, and that much longer as a share of the step."""

LATE_HOST = 0.04
"""A host is late that takes this share of the step, in most steps."""

MOST_FINDINGS = 8


class ProfileFinding(NamedTuple):
    """What is odd, what it costs in ms, and the cell where to look, with its start."""

    kind: str
    text: str
    ms: float
    rank: int
    cell: Cell
    at: float


def findings_of(found: Accounting, steps: Sequence[Accounting]) -> list[ProfileFinding]:
    """The findings of a step, the most costly first; `steps` are the steps of its pipeline."""
    every = [*_slow_ranks(found), *_slow_cells(found), *_late_hosts(found, steps)]
    return sorted(every, key=lambda one: -one.ms)[:MOST_FINDINGS]


def _slow_ranks(found: Accounting) -> Iterator[ProfileFinding]:
    step, typical = found.step, median(one.computing for one in found.ranks)
    for rank, one in enumerate(found.ranks):
        if one.computing > (1 + SLOW_RANK) * typical:
            name, span = step.ranks[rank], max(step.spans[rank], key=lambda span: span.length)
            by_stage = _work_by_stage(found)
            usual = median(by_stage.values())
            slow = [stage for stage in step.table.stages_of(rank) if by_stage[stage] > (1 + SLOW_RANK) * usual]
            each = "; ".join(f"stage {stage} takes {by_stage[stage] / usual:.2f} x the median stage" for stage in slow)
            text = (
                f"Rank {name} computes {one.computing / typical - 1:.0%} longer than the median rank "
                f"({one.computing:.1f} and {typical:.1f} ms){f': {each}' if each else ''}."
            )
            yield ProfileFinding("slow rank", text, one.computing - typical, name, span.cells[0], span.start)


def _work_by_stage(found: Accounting) -> dict[int, float]:
    """Ms of all cells of each stage; of cells that start together each has its part."""
    work: dict[int, float] = defaultdict(float)
    for span in (span for row in found.step.spans for span in row):
        for cell in span.cells:
            work[cell.stage] += span.length / len(span.cells)
    return work


def _slow_cells(found: Accounting) -> Iterator[ProfileFinding]:
    by_kind = defaultdict(list)
    for row in found.step.spans:
        for span in row:
            by_kind[span.kind].append(span.length)
    typical = {kind: median(lengths) for kind, lengths in by_kind.items()}
    for rank, row in zip(found.step.ranks, found.step.spans):
        for span in row:
            more = span.length - typical[span.kind]
            if span.length > SLOW_CELL * typical[span.kind] and more > SLOW_CELL_COST * found.step.length:
                cells = " and ".join(map(str, span.cells))
                times = f"{span.length / typical[span.kind]:.1f} x its median" if typical[span.kind] else "usually none"
                text = f"{cells} on rank {rank} takes {span.length:.1f} ms, {times}."
                yield ProfileFinding("slow cell", text, more, rank, span.cells[0], span.start)


def _late_hosts(found: Accounting, steps: Sequence[Accounting]) -> Iterator[ProfileFinding]:
    for rank, one in enumerate(found.ranks):
        late = [each.ranks[rank].host > LATE_HOST * each.step.length for each in steps]
        if one.host > LATE_HOST * found.step.length and 2 * sum(late) > len(late):
            worst: Idle = max((idle for idle in found.idle if idle.rank == rank), key=lambda idle: idle.host)
            span = found.step.spans[rank][worst.at]
            text = (
                f"Rank {found.step.ranks[rank]} idles {one.host:.1f} ms with its inputs there, most before "
                f"{span.cells[0]} ({worst.host:.1f} ms)."
            )
            yield ProfileFinding("host", text, one.host, found.step.ranks[rank], span.cells[0], span.start)
