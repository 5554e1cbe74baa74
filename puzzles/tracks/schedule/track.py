"""The schedule track: a coroutine that every rank runs; its trace is judged by the referee."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lib import Goal, PuzzleError, Report, Trace, referee, run_async, trace_to_json
from lib.values.algebra import counted
from puzzles.catalog.content import reader_of
from puzzles.catalog.schedule import CLASSICS, PUZZLES, SchedulePuzzle
from puzzles.catalog.schedule.setting_text import differences
from puzzles.catalog.schedule.size_text import size_text
from puzzles.failure import Failure
from puzzles.sandbox.worker.stages.schedule import prepare, require_schedule
from puzzles.tracks.base import Track
from puzzles.tracks.later import later
from puzzles.tracks.outcomes import LocalRun, Measure, Row, RunRequest
from puzzles.tracks.workbench import COLOURS, TensorOptions, Turns, Workbench

from .score import parse_trace, request_at, trace_in

if TYPE_CHECKING:
    from .free_game import FreeGame


# What draws or computes is imported inside the methods that need it: list and show do without.

FIGURES = ("timesteps", "makespan", "peak_memory")
"""In JSON these are at the top level."""

OTHER_FIGURES = ("lasting_peak", "traffic", "drift", "host_memory")
"""These follow them where a run has them."""


class Schedules(Track[SchedulePuzzle]):
    """Schedules: one coroutine that every rank runs, which orders its computation and communication."""

    listing = PUZZLES
    puzzle_class = "SchedulePuzzle"
    name = "schedule"
    in_browser = True
    title = "Schedules"
    idea = "who computes and sends what, and when?"
    form = "one coroutine that every rank runs"
    stage = "puzzles.sandbox.worker.stages.schedule"
    columns = (("time", "timesteps"), ("peak memory", "peak_memory"), ("traffic", "traffic"))
    overview_columns = ("L", "B", "R", "time", "memory", "traffic")
    star_imports_solve = True
    has_pictures = True
    is_saved = True
    runs_without_tensors = True
    colours = COLOURS
    turn_seconds = 0.8
    """A turn is what a rank does between two waits; most take less than a thousandth of it."""

    def is_default(self, slug: str) -> bool:
        return slug in CLASSICS.slugs

    # --- Puzzles of teachers ---

    read = staticmethod(reader_of("schedule"))
    tightest = later("schedule.custom", "tightest")
    reference_games = later("schedule.custom", "games")
    reference_row = later("schedule.custom", "measured")
    stated_rows = later("schedule.custom", "stated")

    # --- Grading ---

    def targets(self, puzzle: SchedulePuzzle) -> Mapping[str, float]:
        given = {name: getattr(puzzle.goal, name) for name in ("time", "memory", "host", "traffic", "drift")}
        return {name: value for name, value in given.items() if value is not None}

    def requests(self, puzzle: SchedulePuzzle) -> Iterator[RunRequest]:
        for size in (puzzle.goal.size, *puzzle.other_sizes):
            yield request_at(puzzle, size, graded=True)

    def measures(self, puzzle: SchedulePuzzle, figures: Mapping[str, float]) -> Sequence[Measure]:
        return list(measures(puzzle.goal, figures))

    async def run_here(self, slug: str, definition: Any, request: RunRequest, turns: Turns) -> LocalRun:
        """All ranks on the running loop; also a run that failed has its trace, as far as it went."""
        require_schedule(slug, definition)
        size, setting = prepare(request.data)
        outcome = await run_async(turns.in_turns(definition), *size, setting=setting)
        row, error = {"trace": outcome.trace}, outcome.error
        if error is None:
            return LocalRun(row)
        model = outcome.models[outcome.errors.index(error)]
        return LocalRun(row, error, f"rank {model.rank}, t={model.time:g}")

    def margin(self, puzzle: SchedulePuzzle, figures: Mapping[str, float]) -> str:
        """Without the peak of a second step, which a sentence of its own follows with its reason."""
        return super().margin(puzzle, {name: figure for name, figure in figures.items() if name != "lasting_peak"})

    def figures_json(self, figures: Mapping[str, float]) -> dict[str, Any]:
        others = {name: figures[name] for name in OTHER_FIGURES if name in figures}
        return {**{name: figures.get(name) for name in FIGURES}, **others}

    def limits_json(self, puzzle: SchedulePuzzle) -> dict[str, dict[str, float]]:
        goal = puzzle.goal
        below = {
            "timesteps": goal.time_limit,
            "peak_memory": goal.memory_limit,
            "traffic": goal.traffic_limit,
            "host_memory": goal.host_limit,
        }
        found = {name: {"below": limit} for name, limit in below.items() if limit is not None}
        return found if goal.drift is None else found | {"drift": {"at_most": goal.drift}}

    # --- Kept runs ---

    def kept(self, row: Row) -> str:
        trace = trace_in(row)
        return "" if isinstance(trace, Failure) else trace_to_json(trace)

    def row_of_saved(self, text: str) -> Row:
        try:
            return {"trace": parse_trace(text)}
        except (PuzzleError, RecursionError, MemoryError, TypeError) as why:
            raise ValueError(str(why)) from None

    sent, row_of_sent = kept, row_of_saved

    def restored(self, puzzle: SchedulePuzzle, kept: str) -> Trace | None:
        return parse_trace(kept) if kept else None

    def report(self, puzzle: SchedulePuzzle, restored: Trace) -> Report:
        return referee(restored, puzzle.goal)

    # --- Words ---

    def called(self, puzzle: SchedulePuzzle) -> str:
        return f"puzzle {PUZZLES.number(puzzle.slug)}"

    def listed_as(self, puzzle: SchedulePuzzle) -> str:
        return f"{PUZZLES.number(puzzle.slug)}. {puzzle.title}"

    def limits(self, puzzle: SchedulePuzzle) -> str:
        """'4 layers, 4 batches, 4 ranks; targets: < 13 timesteps, < 2.4M elements, < 1.6M sent'."""
        goal = puzzle.goal
        words = [f"{goal.time_text} {goal.costs.time_words}", f"{goal.memory_text} elements"]
        words += [f"{goal.host_text} on the host"] if goal.host_text else []
        if goal.traffic_text:
            words.append(f"{goal.traffic_text} sent" + (" for the third star" if goal.decides == "star" else ""))
        words += [] if goal.drift is None else [f"at most {counted(goal.drift, 'update')} between two averages"]
        return f"{size_text(goal.size)}; targets: {', '.join(words)}"

    def starter_head(self, puzzles: Sequence[SchedulePuzzle]) -> str:
        grads = any("WeightGrad" in puzzle.starter for puzzle in puzzles)
        return f"from lib import {'Model, WeightGrad' if grads else 'Model'}\n"

    def signature(self, slug: str) -> str:
        return f"def {slug}(model)"

    record = later("schedule.comparison", "standing")
    comparison = later("schedule.comparison", "comparison")
    third_star = later("schedule.comparison", "third_star")
    built = later("schedule.comparison", "recognized")
    sections = later("schedule.calls", "sections")

    def background(self, puzzle: SchedulePuzzle) -> Sequence[tuple[str, str]]:
        return [("The prediction", puzzle.answer)] if puzzle.answer else []

    def setting_rows(self, puzzle: SchedulePuzzle) -> Sequence[Sequence[str]]:
        rows = [[cell.replace("`", "") for cell in row] for row in differences(puzzle.goal.setting, puzzle.calls)]
        return [[f"costs '{puzzle.goal.costs.name}'", "here", "in the classics"], *rows] if rows else ()

    def overview_cells(self, puzzle: SchedulePuzzle) -> Sequence[str]:
        return (
            *map(str, puzzle.goal.size),
            puzzle.goal.time_text,
            puzzle.goal.memory_text,
            puzzle.goal.traffic_text or "-",
        )

    def overview_note(self, puzzles: Sequence[SchedulePuzzle]) -> str:
        for_star = any(puzzle.goal.decides == "star" for puzzle in puzzles)
        times = " or ".join(sorted({puzzle.goal.costs.time_words for puzzle in puzzles}))
        note = f"L, B, R: layers, batches, ranks. Targets: {times}, peak memory, elements sent."
        return note + (" Traffic decides the third star only." if for_star else "")

    def devices(self, puzzle: SchedulePuzzle) -> int:
        return puzzle.goal.size.ranks

    # --- Pictures and tensors ---

    picture = later("schedule.pictures", "picture")
    beside_reference = later("schedule.comparison", "beside_reference")
    pictures = later("schedule.pictures", "pictures")
    picture_text = later("schedule.pictures", "picture_text")
    draw = later("schedule.draw", "draw_runs")

    def require_runnable(self, puzzle: SchedulePuzzle | FreeGame, options: TensorOptions) -> None:
        if options.output:
            from drawing import require_ending

            require_ending(options.output, of_a_run=False)

    def run_on_tensors(self, puzzle: SchedulePuzzle | FreeGame, options: TensorOptions, bench: Workbench) -> bool:
        from .run_on_tensors import replay_run, run_freely

        if not isinstance(puzzle, SchedulePuzzle):
            return run_freely(puzzle, options, bench)
        return bench.grade() if options.tensors is False else replay_run(puzzle, options, bench)


def measures(goal: Goal, figures: Mapping[str, float]) -> Iterator[Measure]:
    """The figures beside their targets. Where the steady peak decides the pass, it is shown in place of the peak."""
    for_star = goal.decides == "star"
    memory, lasting = figures.get("peak_memory"), figures.get("lasting_peak")
    counts_steady = goal.steady and lasting is not None
    limit, shown = goal.memory_limit, goal.memory_text
    in_steady = Measure.below_limit("elements in a second step", lasting, limit, shown, "peak_memory")
    time, unit = figures.get("timesteps"), goal.costs.time_words
    yield Measure.below_limit(unit, time, goal.time_limit, goal.time_text, "timesteps")
    if counts_steady and not for_star:
        yield in_steady
    else:
        yield Measure.below_limit("elements", memory, limit, shown, "peak_memory")
    if goal.traffic_limit is not None:
        traffic = figures.get("traffic")
        found = Measure.below_limit("elements sent", traffic, goal.traffic_limit, goal.traffic_text, "traffic")
        yield found._replace(for_star=for_star)
    if goal.host_limit is not None:
        host = figures.get("host_memory")
        yield Measure.below_limit("elements on the host", host, goal.host_limit, goal.host_text, "host_memory")
    if goal.drift is not None:
        yield Measure.at_most("updates between two averages", figures.get("drift"), goal.drift, "drift")
    if counts_steady and for_star:
        yield in_steady._replace(figure="lasting_peak", for_star=True)
