"""A profiled pipeline as data: its steps, the name of its schedule, where the time went, and what could be shorter."""

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from statistics import median, quantiles
from typing import Any, NamedTuple

from lib.errors import RuleError
from lib.recognition import Recognition, recognize_table

from .accounting import TRUSTED, Accounting, ProfileFinding, Rung, accounted, findings_of, ladder_of
from .better import Prospect, prospect
from .gathered import Gathered, gathered, read_profiles
from .names import NameRule
from .shares import Shares, collective_shares, middle_step, single_shares
from .sources import RankProfile, Source


class StageTime(NamedTuple):
    """Of an operation of a stage: the median time and its tenth and ninetieth percentile, in ms."""

    median: float
    low: float
    high: float


class StageRow(NamedTuple):
    """A stage: its rank, the times of its operations, and how many forwards its rank holds at most."""

    stage: int
    rank: int
    times: dict[str, StageTime]
    held: int


@dataclass(frozen=True)
class Study:
    """One step in full, and all steps in short. With several replicas, a step is that of the slowest replica."""

    gathered: Gathered
    steps: tuple[Accounting, ...]
    """The slowest pipeline of each step."""
    chosen: Accounting

    @cached_property
    def name(self) -> Recognition:
        return recognize_table(self.chosen.step.table)

    @cached_property
    def ladder(self) -> list[Rung]:
        return ladder_of(self.chosen)

    @property
    def is_trusted(self) -> bool:
        """True if almost all of the step is explained."""
        return abs(self.ladder[-1].ms) <= TRUSTED * self.chosen.step.length

    @cached_property
    def findings(self) -> list[ProfileFinding]:
        return findings_of(
            self.chosen, [accounting for accounting in self.steps if accounting.step.ranks == self.chosen.step.ranks]
        )

    @cached_property
    def prospect(self) -> Prospect:
        return prospect(self.chosen)

    @cached_property
    def better_name(self) -> Recognition | None:
        return recognize_table(self.prospect.better.table) if self.prospect.better else None

    @cached_property
    def stages(self) -> list[StageRow]:
        step = self.chosen.step
        rows = []
        for rank, spans in enumerate(step.spans):
            by_op: dict[tuple[int, str], list[float]] = {}
            in_flight = most = 0
            for span in spans:
                for cell in span.cells:
                    in_flight += {"F": 1, "I": 0}.get(cell.op, -1)
                    most = max(most, in_flight)
                    if len(span.cells) == 1:
                        by_op.setdefault((cell.stage, cell.op), []).append(span.length)
            for stage in step.table.stages_of(rank):
                times = {op: _time(by_op[stage, op]) for op in "FBIW" if (stage, op) in by_op}
                rows.append(StageRow(stage, step.ranks[rank], times, most))
        return sorted(rows)


def _time(lengths: Sequence[float]) -> StageTime:
    tenths = quantiles(lengths, n=10, method="inclusive") if len(lengths) > 1 else [*lengths] * 9
    return StageTime(median(lengths), tenths[0], tenths[-1])


def study(
    sources: Sequence[Source],
    rules: Sequence[NameRule] = (),
    only: Collection[int] | None = None,
    step: int | None = None,
) -> Study | Shares:
    """What the files of a run say: of a pipeline a `Study`, else the shares of its ranks. `only` are the ranks that are
    there, if not all are; `step` is the one to show in full, else the one of median length.

    Raises:
        RuleError: the files cannot be read, are not of one run, or name no cells; the text says what to do.
    """
    profiles = read_profiles(sources, rules, only)
    world = profiles[0].world or len(profiles)
    with_cells = [any(step.spans for step in profile.steps.values()) for profile in profiles]
    if not any(with_cells):
        return collective_shares(profiles, step)
    if len(profiles) < world:
        return single_shares(profiles, step)
    try:
        pipelines = gathered(profiles)
    except RuleError as why:
        if any(has and not profile.notes for has, profile in zip(with_cells, profiles)):
            raise
        shares = collective_shares(profiles, step)  # the cells were guessed from messages, and do not fit together
        return replace(shares, notes=(*shares.notes, f"{str(why)[0].upper()}{str(why)[1:]}."))
    slowest: dict[int, Accounting] = {}
    for accounting in map(accounted, pipelines.steps):
        before = slowest.get(accounting.step.number)
        if before is None or accounting.step.length > before.step.length:
            slowest[accounting.step.number] = accounting
    chosen = middle_step({number: accounting.step.length for number, accounting in slowest.items()}, step)
    return Study(pipelines, tuple(slowest.values()), slowest[chosen])


VERSION = 1


def as_record(studied: Study | Shares) -> dict[str, Any]:
    """The study in a form that `json.dumps` can write."""
    if isinstance(studied, Shares):
        return {
            **_files(studied.profiles, studied.notes),
            "step": {"number": studied.step, "ms": studied.length, "collectives": studied.calls},
            "ranks": [{**time._asdict(), "phases": dict(time.phases)} for time in studied.ranks],
            "collectives": {name: exposed._asdict() for name, exposed in studied.collectives.items()},
            "waited_for": studied.waited_for,
        }
    step, better = studied.chosen.step, studied.prospect.better
    return {
        **_files(studied.gathered.profiles, studied.gathered.notes),
        "schedule": {"name": studied.name.name, "text": studied.name.text},
        "steps": [
            {
                "number": accounting.step.number, "ranks": accounting.step.ranks, "ms": accounting.step.length,
                "bubble": accounting.bubble,
            }
            for accounting in studied.steps
        ],
        "step": {
            "number": step.number,
            "ms": step.length,
            "outside_ms": step.outside,
            "bubble": studied.chosen.bubble,
            "bubble_of_ideal": studied.chosen.of_ideal,
            "message_ms": studied.chosen.message,
            "clock_offsets_ms": step.clocks.offsets,
            "clock_doubt_ms": step.clocks.doubt,
        },
        "ladder": [{"cause": rung.cause, "ms": rung.ms, "share": rung.ms / step.length} for rung in studied.ladder],
        "stages": [
            {**row._asdict(), "times": {op: time._asdict() for op, time in row.times.items()}} for row in studied.stages
        ],
        "ranks": _ranks(studied.chosen),
        "findings": [{**finding._asdict(), "cell": str(finding.cell)} for finding in studied.findings],
        "bound": asdict(studied.prospect.bound) if studied.prospect.bound else None,
        "better": better and {
            "name": studied.better_name.text if studied.better_name else "",
            "ms": better.ms, "range_ms": better.span, "replay_ms": better.replay, "shorter": better.shorter,
            "halves_assumed": better.assumed, "held": better.held, "rows": str(better.table).splitlines(),
        },
        "refusal": studied.prospect.refusal,
    }  # fmt: skip


def _files(profiles: Sequence[RankProfile], notes: Sequence[str]) -> dict[str, Any]:
    return {
        "version": VERSION,
        "kind": profiles[0].kind,
        "files": [{"file": profile.file, "rank": profile.rank} for profile in profiles],
        "notes": list(notes),
    }


def _ranks(accounting: Accounting) -> list[dict[str, Any]]:
    step = accounting.step
    return [
        {
            "rank": rank,
            **shares._asdict(),
            "cells": [
                {"cells": [str(cell) for cell in span.cells], "start": span.start, "end": span.end, "busy": span.busy}
                for span in row
            ],
        }
        for rank, shares, row in zip(step.ranks, accounting.ranks, step.spans)
    ]
