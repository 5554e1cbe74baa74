"""The plan track: a function that splits a real training job over a real cluster; the split is played and measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

from puzzles.catalog.fields import Fields
from puzzles.catalog.plan import CHAPTER, PLAN_PUZZLES
from puzzles.catalog.plan.page import CALLS, COUNTED, PREDICT, job_lines, published_text
from puzzles.tracks.base import Track
from puzzles.tracks.outcomes import Measure, Row, RunRequest
from puzzles.tracks.shown import Column, OptionError, Overview, Section

if TYPE_CHECKING:
    from lib.planning import Plan
    from puzzles.catalog.plan.puzzle import PlanPuzzle
    from puzzles.tracks.workbench import DrawOptions, TensorOptions, Workbench

# What plays splits is imported inside the methods that judge: list, show and hint do without.

SHOWN_TIED = 2
"""Kinds of splits that a sentence names."""


class Plans(Track["PlanPuzzle"]):
    """Splits of training jobs: a function returns the split, and the ledger plays it."""

    listing = PLAN_PUZZLES
    puzzle_class = "PlanPuzzle"
    why_no_records = "a plan has no records, because its target comes from a search of all splits"
    name = "plan"
    title = CHAPTER.title
    idea = CHAPTER.idea
    form = "one function that splits a training job over its GPUs"
    stage = "puzzles.sandbox.worker.stages.plan"
    reasons = ("split", "memory")
    has_pictures = True
    why_title = "where time and memory go"
    in_browser = True
    columns = (("s/step", "seconds"), ("GiB", "gib"))

    def read(self, slug: str, fields: Fields) -> PlanPuzzle:
        from .custom import read_puzzle

        return read_puzzle(slug, fields)

    def tightest(self, figures: Mapping[str, float]) -> dict[str, float]:
        return {"seconds": figures["seconds"]}

    def targets(self, puzzle: PlanPuzzle) -> Mapping[str, float]:
        return {"seconds": puzzle.seconds, "gib": puzzle.gib}

    def requests(self, puzzle: PlanPuzzle) -> Iterator[RunRequest]:
        from .score import request_for

        yield request_for(puzzle)

    def measures(self, puzzle: PlanPuzzle, figures: Mapping[str, float]) -> Sequence[Measure]:
        return [
            Measure.at_most("seconds a step", figures.get("seconds"), puzzle.seconds, "seconds"),
            Measure.at_most("GiB of the fullest GPU", figures.get("gib"), puzzle.gib, "gib"),
        ]

    def figures_text(self, puzzle: PlanPuzzle, figures: Mapping[str, float]) -> str:
        more = f"up to {figures['gib_high']:g} GiB in eager code, MFU {figures['mfu']:g} %" if figures else ""
        return ", ".join(filter(None, [super().figures_text(puzzle, figures), more]))

    def kept(self, row: Row) -> str:
        from .score import kept_text

        return kept_text(row)

    def saved_as(self, puzzle: PlanPuzzle) -> str:
        return f"{puzzle.slug}.json"

    def row_of_saved(self, text: str) -> Row:
        from .score import row_of

        return row_of(text)

    def restored(self, puzzle: PlanPuzzle, kept: str) -> Plan | None:
        from .score import plan_of

        return plan_of(puzzle, kept)

    def called(self, puzzle: PlanPuzzle) -> str:
        return f"plan puzzle {PLAN_PUZZLES.number(puzzle.slug)}"

    def limits(self, puzzle: PlanPuzzle) -> str:
        job = puzzle.job
        return (
            f"{job.model.name} on {job.gpus:,} {job.gpu.name}, {job.batch:,} sequences of {job.sequence:,} tokens a "
            f"step: at most {puzzle.seconds:,} s, and {puzzle.gib:g} GiB of each GPU"
        )

    def starter_head(self, puzzles: Sequence[PlanPuzzle]) -> str:
        return "from lib.planning import Job, Prediction, Split\n"

    def signature(self, slug: str) -> str:
        return f"def {slug}(job)"

    def record(self, puzzle: PlanPuzzle, figures: Mapping[str, float], stars: int, family: str = "") -> str:
        known = f"The best known step takes {puzzle.best:,} s"
        if stars < 3:
            said = f"{known}; three stars are for 1 %."
        elif figures["seconds"] <= puzzle.best:
            said = f"Three stars: nothing better is known, {puzzle.best:,} s."
        else:
            said = f"Three stars. {known}, which the model cannot tell from yours."
        tied = ", ".join(f"{one} {seconds:,} s" for one, seconds in list(puzzle.tied.items())[:SHOWN_TIED])
        cannot = f"The model cannot tell it from the best of other kinds, such as {tied}." if tied else ""
        return " ".join(filter(None, [said, cannot, published_text(puzzle)]))

    def built(self, puzzle: PlanPuzzle, kept: str) -> str:
        from lib.planning.families import family_of

        plan = self.restored(puzzle, kept)
        return "" if plan is None else f"{family_of(plan.split)} ({plan.split})"

    def run_page(self, puzzle: PlanPuzzle, kept: str) -> str:
        head = f'<!doctype html><meta charset="utf-8"><title>{escape(puzzle.title)}</title>'
        return f"{head}{self.picture(puzzle, kept)}<pre>{escape(self.picture_text(puzzle, kept, 100))}</pre>\n"

    def sections(self, puzzle: PlanPuzzle) -> Sequence[Section]:
        return [
            Section("The job", job_lines(puzzle)),
            Section("First predict", PREDICT),
            Section("Counted", COUNTED),
            Section("A split", CALLS),
        ]

    def overview(self, slugs: Sequence[str]) -> Overview:
        numbers = [Column(heading, "right", no_wrap=True) for heading in ("GPUs", "s/step", "GiB")]
        columns = [Column("#", "right"), Column("puzzle", no_wrap=True, style="bold"), Column("title"), *numbers]
        rows = [
            (
                str(PLAN_PUZZLES.number(p.slug)),
                p.slug,
                p.title,
                f"{p.job.gpus:,} {p.job.gpu.name}",
                f"{p.seconds:,}",
                f"{p.gib:g}",
            )
            for p in map(self.puzzle, slugs)
        ]
        return Overview(columns, rows, ["Limits: seconds of a step, for two stars; GiB of the fullest GPU."])

    def devices(self, puzzle: PlanPuzzle) -> int:
        return puzzle.job.gpus

    # --- Pictures ---

    def picture(self, puzzle: PlanPuzzle, kept: str, judged: bool = True) -> str:
        from .draw import plan_picture

        return plan_picture(self.restored(puzzle, kept), puzzle)

    def picture_text(self, puzzle: PlanPuzzle, kept: str, width: int) -> str:
        from .words import plan_lines

        plan = self.restored(puzzle, kept)
        return "" if plan is None else "\n".join(plan_lines(plan))

    def pictures(
        self, puzzle: PlanPuzzle, kept: str, figures: Mapping[str, float], colour: str = "layer"
    ) -> Sequence[str]:
        from .draw import plan_picture, timeline

        plan = self.restored(puzzle, kept)
        return [plan_picture(plan, puzzle), timeline(plan, puzzle)]

    def draw(self, puzzle: PlanPuzzle, options: DrawOptions, bench: Workbench) -> bool:
        from .draw import draw_plan_of

        return draw_plan_of(puzzle, options, bench)

    def require_runnable(self, puzzle: PlanPuzzle, options: TensorOptions) -> None:
        raise OptionError(f"{puzzle.slug} is a plan for {puzzle.job.gpus:,} GPUs, which runs on no tensors here")
