"""Compares a schedule that passed with the records: those of its own family, and all of this size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from lib import Goal, Record
from puzzles.catalog.schedule import SchedulePuzzle
from puzzles.tracks.outcomes import SEE_NOTE


def standing(puzzle: SchedulePuzzle, figures: Mapping[str, float], stars: int, family: str) -> str:
    """Sentences on the third star, on the family where it is not the puzzle's own, and on the open front.

    A `family` that is not known is empty, and taken for the puzzle's own.
    """
    return " ".join(_sentences(puzzle, figures, stars, family))


def third_star(puzzle: SchedulePuzzle, figures: Mapping[str, float], stars: int, family: str) -> str:
    """The sentences of `standing` that say what the third star takes, or that it is earned; empty if a note says it."""
    said = list(_sentences(puzzle, figures, stars, family))
    if SEE_NOTE in said:
        return ""
    return said[0] if _is_own(puzzle, family) else " ".join(said)


def _sentences(puzzle: SchedulePuzzle, figures: Mapping[str, float], stars: int, family: str) -> Iterator[str]:
    point = figures["timesteps"], int(figures["peak_memory"])
    return _own(puzzle, point, stars) if _is_own(puzzle, family) else _other(puzzle, point, stars, family)


def _is_own(puzzle: SchedulePuzzle, family: str) -> bool:
    return family in ("", puzzle.goal.family)


def _own(puzzle: SchedulePuzzle, point: tuple[float, int], stars: int) -> Iterator[str]:
    goal = puzzle.goal
    has_others = any(not record.is_of(goal.family) for record in goal.open_front)
    of_this_kind = f" of this kind ({goal.family})" if has_others else ""
    own, any_kind = _best(goal.records_to_beat(goal.family), point), _best(goal.open_front, point)
    if stars >= 3:
        yield f"Three stars: no better schedule{of_this_kind} is known."
    else:
        yield _to_beat(own, f"Best known{of_this_kind}", goal)
    if not has_others:
        return
    if any_kind is None:
        yield "No schedule of any kind known at this size is better."
    elif any_kind != own:
        yield f"Of any kind at this size: {_figures(any_kind, goal)} ({any_kind.family})."


def _other(puzzle: SchedulePuzzle, point: tuple[float, int], stars: int, family: str) -> Iterator[str]:
    goal = puzzle.goal
    yield f"This is {family}, and the puzzle is about {goal.family}. It is compared with all schedules of this size."
    if stars >= 3:
        yield "Three stars: none of them is better."
    else:
        better = _best(goal.records, point)
        yield _to_beat(better, f"Best known ({better.family})" if better else "", goal)


def _to_beat(better: Record | None, which: str, goal: Goal) -> str:
    """What the third star takes; if no record is better, a note is what costs it."""
    if better is None:
        return SEE_NOTE
    return f"{which}: {_figures(better, goal)}. Match that for the third star."


def _best(records: Sequence[Record], point: tuple[float, int]) -> Record | None:
    """The fastest of the records that are better."""
    better = [record for record in records if record.dominates(*point)]
    return min(better, default=None)


def _figures(record: Record, goal: Goal) -> str:
    return f"{goal.costs.took(record.timesteps)} and {record.peak_memory:,} elements"
