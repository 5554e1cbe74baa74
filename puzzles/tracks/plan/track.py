"""The plan track: a function that splits a real training job over a real cluster; the split is played and measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from puzzles.catalog.content import reader_of
from puzzles.catalog.plan import CHAPTER, PLAN_PUZZLES
from puzzles.tracks.base import Track
from puzzles.tracks.later import later
from puzzles.tracks.outcomes import Measure
from puzzles.tracks.plan.page import CALLS, COUNTED, PREDICT, job_lines, published_text
from puzzles.tracks.shown import OptionError, Section
from puzzles.tracks.workbench import TensorOptions

if TYPE_CHECKING:
    from puzzles.catalog.plan.puzzle import PlanPuzzle

# What plays splits is imported inside the methods that judge: list, show and hint do without.

SHOWN_TIED = 2
"""Kinds of splits that a sentence names."""


class Plans(Track["PlanPuzzle"]):
    """Splits of training jobs: a function returns the split, and the ledger plays it."""

    listing = PLAN_PUZZLES
    puzzle_class = "PlanPuzzle"
    name = "plan"
    title = CHAPTER.title
    idea = CHAPTER.idea
    form = "one function that splits a training job over its GPUs"
    stage = "puzzles.sandbox.worker.stages.plan"
    reasons = ("split", "memory")
    has_pictures = True
    is_saved = True
    why_title = "where time and memory go"
    in_browser = True
    columns = (("s/step", "seconds"), ("GiB", "gib"))
    overview_columns = ("GPUs", "s/step", "GiB")

    read = staticmethod(reader_of("plan"))

    def tightest(self, figures: Mapping[str, float]) -> dict[str, float]:
        return {"seconds": figures["seconds"]}

    def targets(self, puzzle: PlanPuzzle) -> Mapping[str, float]:
        return {"seconds": puzzle.seconds, "gib": puzzle.gib}

    requests = later("plan.score", "requests")

    def measures(self, puzzle: PlanPuzzle, figures: Mapping[str, float]) -> Sequence[Measure]:
        return [
            Measure.at_most("seconds a step", figures.get("seconds"), puzzle.seconds, "seconds"),
            Measure.at_most("GiB of the fullest GPU", figures.get("gib"), puzzle.gib, "gib"),
        ]

    def figures_text(self, puzzle: PlanPuzzle, figures: Mapping[str, float]) -> str:
        more = f"up to {figures['gib_high']:g} GiB in eager code, MFU {figures['mfu']:g} %" if figures else ""
        return ", ".join(filter(None, [super().figures_text(puzzle, figures), more]))

    kept = later("plan.score", "kept_text")
    row_of_saved = later("plan.score", "row_of")
    restored = later("plan.score", "plan_of")

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
        cannot = f"Other kinds of split are within the model's error: {tied}." if tied else ""
        return " ".join(filter(None, [said, cannot, published_text(puzzle)]))

    def built(self, puzzle: PlanPuzzle, kept: str) -> str:
        from lib.planning.plans import family_of

        plan = self.restored(puzzle, kept)
        return "" if plan is None else f"a plan: {family_of(plan.split)} ({plan.split})"

    def sections(self, puzzle: PlanPuzzle) -> Sequence[Section]:
        return [
            Section("The job", job_lines(puzzle)),
            Section("First predict", PREDICT),
            Section("Counted", COUNTED),
            Section("A split", CALLS),
        ]

    def overview_cells(self, puzzle: PlanPuzzle) -> Sequence[str]:
        return f"{puzzle.job.gpus:,} {puzzle.job.gpu.name}", f"{puzzle.seconds:,}", f"{puzzle.gib:g}"

    def overview_note(self, puzzles: Sequence[PlanPuzzle]) -> str:
        return "Limits: seconds of a step, for two stars; GiB of the fullest GPU."

    def devices(self, puzzle: PlanPuzzle) -> int:
        return puzzle.job.gpus

    # --- Pictures ---

    picture = later("plan.draw", "picture")
    picture_text = later("plan.draw", "picture_text")
    pictures = later("plan.draw", "pictures")
    draw = later("plan.draw", "draw_plan_of")

    def require_runnable(self, puzzle: PlanPuzzle, options: TensorOptions) -> None:
        raise OptionError(f"{puzzle.slug} is a plan for {puzzle.job.gpus:,} GPUs, which runs on no tensors here")
