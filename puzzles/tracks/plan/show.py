"""Pictures of a plan: where its time and memory go, and its timeline; a plan is not run on tensors."""

from collections.abc import Mapping

from lib.planning import Plan
from puzzles.catalog.plan import PlanPuzzle
from puzzles.failure import Failure
from puzzles.tracks import base
from puzzles.tracks.base import DrawOptions, OptionError, TensorOptions, Workbench, as_svg, report_failure

from .judge import plan_lines, plan_of_file

DRAWN = 40_000
"""Events of a timeline that a page shows."""


class Show(base.Show[PlanPuzzle]):
    """A plan: where its time and memory go as a picture, its timeline as a page to explore, both as text."""

    has_pictures = True

    def picture(self, puzzle: PlanPuzzle, kept: str, judged: bool = True, colour: str = "layer") -> str:
        """Where the time and the memory of a kept run go, as SVG; empty if there is no plan."""
        return self.pictures(puzzle, kept, {})[0]

    def pictures(
        self, puzzle: PlanPuzzle, kept: str, figures: Mapping[str, float], colour: str = "layer"
    ) -> tuple[str, str]:
        """The picture, and the timeline, which is empty if it is too long to show."""
        plan = self.track.judge.restored(puzzle, kept)
        if plan is None:
            return "", ""
        is_short = sum(map(len, plan.trace.ranks)) <= DRAWN
        timeline = as_svg("drawing:draw_steps", plan, title_of(plan)) if is_short else ""
        return as_svg("drawing:draw_waterfall", plan, puzzle.title, puzzle.seconds), timeline

    def picture_text(self, puzzle: PlanPuzzle, kept: str, width: int, colour: str = "layer") -> str:
        """The same in words."""
        plan = self.track.judge.restored(puzzle, kept)
        return "" if plan is None else "\n".join(plan_lines(plan))

    def draw(self, puzzle: PlanPuzzle, options: DrawOptions, bench: Workbench) -> bool:
        """`puzzles draw` of a plan: writes the picture or the timeline, and returns whether there is a plan."""
        import drawing

        if options.against or options.pareto or options.critical:
            raise OptionError(f"{puzzle.slug} is a plan; it is drawn without --against, --pareto and --critical")
        target = options.output or f"{puzzle.slug}.svg"
        if not options.text or options.output:
            drawing.require_ending(target)
        plan = plan_of_file(puzzle, bench)
        if isinstance(plan, Failure):
            return report_failure(puzzle.slug, plan, bench)
        if options.text:
            bench.console.print("\n".join(plan_lines(plan)), soft_wrap=True, markup=False, highlight=False)
        if not options.text or options.output:
            if drawing.is_picture(target):
                drawing.save(drawing.draw_waterfall(plan, puzzle.title, puzzle.seconds, options.dark), target)
            else:
                drawing.save(drawing.TimedRun(plan.trace), target, title_of(plan), colour=options.colour)
            bench.wrote(target)
        return True

    def require_runnable(self, puzzle: PlanPuzzle, options: TensorOptions) -> None:
        raise OptionError(f"{puzzle.slug} is a plan for {puzzle.job.gpus:,} GPUs, which runs on no tensors here")


def title_of(plan: Plan) -> str:
    """What a timeline shows: one of equal replicas."""
    return f"{plan.split}: one replica, in milliseconds"
