"""Describes a schedule that passed: its kind, and how its calls differ from the reference solution's."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module

from lib import Goal, Record, Report, Trace, referee, trace_from_json
from lib.bounds import Bound, memory_bound, pipeline_memory_bound, pipeline_time_bound, time_bound, traffic_bound
from lib.game.goal import figures_text
from lib.judging.family import PIPELINES
from lib.recognition import Recognition, recognize
from lib.trace.ops import TIMED
from lib.values.algebra import counted
from puzzles.catalog.path import place_of, taught_in
from puzzles.catalog.schedule import PUZZLES, SchedulePuzzle
from puzzles.catalog.schedule_papers import with_papers
from puzzles.tracks.outcomes import SEE_NOTE, amount, listed, number_text

Figures = tuple[float, int, int | None]

BEYOND = "With"
"""How the sentence on a record begins that needs a later idea."""


def standing(puzzle: SchedulePuzzle, figures: Mapping[str, float], stars: int, family: str = "") -> str:
    """Sentences on the third star, on the family where it is not the puzzle's own, and on the open front.

    A `family` that is not known is empty, and taken for the puzzle's own.
    """
    return " ".join(_sentences(puzzle, figures, stars, family))


def third_star(puzzle: SchedulePuzzle, figures: Mapping[str, float], stars: int, family: str = "") -> str:
    """The sentences of `standing` that say what the third star takes, or that it is earned; empty if a note says it."""
    said = list(_sentences(puzzle, figures, stars, family))
    if SEE_NOTE in said:
        return ""
    if _is_own(puzzle, family):
        said = [said[0], *(sentence for sentence in said[1:] if sentence.startswith(BEYOND))]
    return " ".join(said)


def _sentences(puzzle: SchedulePuzzle, figures: Mapping[str, float], stars: int, family: str) -> Iterator[str]:
    point = figures_of(figures)
    return _own(puzzle, point, stars) if _is_own(puzzle, family) else _other(puzzle, point, stars, family)


def _is_own(puzzle: SchedulePuzzle, family: str) -> bool:
    return family in ("", puzzle.goal.family)


def _own(puzzle: SchedulePuzzle, point: Figures, stars: int) -> Iterator[str]:
    goal = puzzle.goal
    has_others = any(not record.is_of(goal.family) for record in goal.open_front)
    ahead = _soonest(puzzle, point)
    of_this_kind = f" of this kind ({goal.family})" if has_others else ""
    own, any_kind = _best(goal.rivals(goal.family), point), _best(goal.open_front, point)
    if stars >= 3:
        yield f"Three stars: no better schedule{of_this_kind} is known{' with the ideas so far' if ahead else ''}."
    else:
        yield _to_beat(goal, own, f"Best known{of_this_kind}{' with the ideas so far' if ahead else ''}")
    if ahead:
        slugs = taught_in(goal.untold(ahead))
        ideas = "later ideas" if len(slugs) > 1 else "a later idea"
        yield f"{BEYOND} {ideas} ({listed([f'`{slug}`' for slug in slugs])}): {goal.words(ahead)}."
    if not has_others:
        return
    if any_kind is None:
        yield "No schedule of any kind known at this size is better."
    elif any_kind != own:
        yield f"Of any kind at this size: {goal.words(any_kind)} ({any_kind.family})."


def _soonest(puzzle: SchedulePuzzle, point: Figures) -> Record | None:
    """Of the better records that need a later idea, the one whose ideas come first on the path."""

    def place(record: Record) -> int:
        return max(map(place_of, taught_in(puzzle.goal.untold(record))))

    better = [record for record in puzzle.goal.beyond if record.dominates(*point)]
    return min(better, key=lambda record: (place(record), record.figures[:2]), default=None)


def _other(puzzle: SchedulePuzzle, point: Figures, stars: int, family: str) -> Iterator[str]:
    goal = puzzle.goal
    yield f"This is {family}, and the puzzle is about {goal.family}. It is compared with all schedules of this size."
    if stars >= 3:
        yield "Three stars: none of them is better."
    else:
        better = _best(goal.rivals(family), point)
        yield _to_beat(goal, better, f"Best known ({better.family})" if better else "")


def _to_beat(goal: Goal, better: Record | None, which: str) -> str:
    """What the third star takes; if no record is better, a note is what costs it."""
    if better is None:
        return SEE_NOTE
    return f"{which}: {goal.words(better)}. Match it for the third star."


def _best(records: Sequence[Record], point: Figures) -> Record | None:
    """The fastest of the records that are better."""
    better = [record for record in records if record.dominates(*point)]
    return min(better, key=lambda record: record.figures[:2], default=None)


def figures_of(figures: Mapping[str, float]) -> Figures:
    """The figures in which schedules are compared: timesteps, elements at the peak and elements sent."""
    traffic = figures.get("traffic")
    return figures["timesteps"], int(figures["peak_memory"]), None if traffic is None else int(traffic)


NO_BOUND = Bound(0, "")


def above_possible(
    trace: Trace,
    found: Recognition,
    figures: Mapping[str, float],
    records: Sequence[Record] = (),
    time_limit: float = 0,
) -> Iterator[str]:
    """Sentences that compare a schedule's figures with the bounds of its size, and a pipeline's with the bound of its
    stages, unless one of the `records` is a faster pipeline: then that has other stages. What has to be sent is said of
    schedules that take less than `time_limit`."""
    size, setting = trace.size, trace.setting
    least, floor = time_bound(size, setting), memory_bound(size, setting)
    own = pipeline_time_bound(size, setting, found.stages) if found.stages else NO_BOUND
    beaten = any(record.timesteps < own.least for record in records if record.family in ("", *PIPELINES))
    bounds = [(own, "a pipeline with these stages")] if own.least > least.least and not beaten else []
    bounds += [(least, "any schedule")] if least.least else []
    if bounds:
        timesteps = figures["timesteps"]
        yield f"Time: {'; '.join(_above(timesteps, bound, setting.costs.time_unit, where) for bound, where in bounds)}."
    if beaten:
        yield "The fastest pipeline known at this size has other stages; with these stages, no schedule is as fast."
    peak, until = figures["peak_memory"], max(time_limit, figures["timesteps"])
    kept = pipeline_memory_bound(size, setting, found.stages, until) if found.stages else NO_BOUND
    lower = any(record.peak_memory < kept.least for record in records if record.family in ("", *PIPELINES))
    of_stages = f"a pipeline with these stages that takes at most {setting.costs.took(until)} and sends no input twice"
    bounds = [(kept, of_stages)] if floor.least < kept.least <= peak and not lower else []
    bounds += [(floor, "any schedule")] if floor.least else []
    if bounds:
        yield f"Memory: {'; '.join(_above(peak, bound, 'elements', where) for bound, where in bounds)}."
    sent = traffic_bound(size, setting, time_limit)
    if sent.least and "traffic" in figures and time_limit:
        fast = f"any schedule below {setting.costs.took(time_limit)}"
        yield f"Traffic: {_above(figures['traffic'], sent, 'elements sent by a rank', fast)}."


def _above(figure: float, bound: Bound, unit: str, where: str) -> str:
    """'any schedule needs at least 30.4 steps (...), and this one takes 2.9 more'."""
    more = round(figure - bound.least, 3)
    this = f"{number_text(more)} more" if more else "no more"
    least = amount(bound.least, unit)
    return f"{where} needs at least {least} ({bound.reason}), and this one takes {this}"


def comparison(puzzle: SchedulePuzzle, figures: Mapping[str, float], kept: str) -> Iterator[str]:
    """Sentences on how far the schedule is from what is possible, and on what the reference does differently, where it
    is installed."""
    if not kept:
        return
    trace = trace_from_json(kept)
    found = recognize(trace)
    if found is not None:
        yield from above_possible(trace, found, figures, puzzle.goal.records, puzzle.goal.time_limit)
    known = reference_run(puzzle.slug)
    if known is None:
        return
    reference, report = known
    theirs, mine = _counts(reference), _counts(trace)
    differing = [
        f"{name} {counted(theirs[name], 'time')} (you: {mine[name]})"
        for name in sorted(mine | theirs)
        if mine[name] != theirs[name]
    ]
    sent = report.traffic if "traffic" in figures else None
    same = (report.timesteps, report.peak.memory, sent) == figures_of(figures)
    if differing:
        yield f"The reference calls {', '.join(differing)}, counted over all ranks."
    elif same:
        yield "The reference makes the same calls."
    if not same:
        taken = figures_text(report.timesteps, report.peak.memory, sent, report.costs.time_words)
        yield f"The reference takes {taken}."


def recognized(puzzle: SchedulePuzzle, kept: str) -> str:
    """What the schedule is called, with its papers; empty if it has no name, or if that is only its family, which
    `standing` names where it is not the puzzle's own."""
    found = recognize(trace_from_json(kept)) if kept else None
    if found is None or (found.family != puzzle.goal.family and found.text == found.family):
        return ""
    return with_papers(found)


@cache
def reference_run(slug: str) -> tuple[Trace, Report] | None:
    """The reference solution's run at the shown size, and the referee's report; None where it is not installed."""
    from lib.runtime.runner import played  # here, since asyncio takes longer to import than all of lib

    try:
        solution = getattr(import_module(f"solutions.{slug}"), slug)
    except ImportError:
        return None
    goal = PUZZLES[slug].goal
    trace = played(solution, goal.size, goal.setting).trace
    return trace, referee(trace)


def _counts(trace: Trace) -> Counter[str]:
    return Counter(op.name for ops in trace.ranks for op in ops if op.name in TIMED and op.name != "receive")
