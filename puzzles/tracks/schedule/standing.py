"""Compares a schedule that passed with the records: those of its own family, and all of this size."""

from collections.abc import Iterator, Mapping, Sequence

from lib import Goal, Record
from puzzles.catalog.schedule import SchedulePuzzle
from puzzles.tracks.outcomes import SEE_NOTE

Figures = tuple[float, int, int | None]


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
    return said[0] if _is_own(puzzle, family) else " ".join(said)


def _sentences(puzzle: SchedulePuzzle, figures: Mapping[str, float], stars: int, family: str) -> Iterator[str]:
    point = figures_of(figures)
    return _own(puzzle, point, stars) if _is_own(puzzle, family) else _other(puzzle, point, stars, family)


def _is_own(puzzle: SchedulePuzzle, family: str) -> bool:
    return family in ("", puzzle.goal.family)


def _own(puzzle: SchedulePuzzle, point: Figures, stars: int) -> Iterator[str]:
    goal = puzzle.goal
    has_others = any(not record.is_of(goal.family) for record in goal.open_front)
    of_this_kind = f" of this kind ({goal.family})" if has_others else ""
    own, any_kind = _best(goal.rivals(goal.family), point), _best(goal.open_front, point)
    if stars >= 3:
        yield f"Three stars: no better schedule{of_this_kind} is known."
    else:
        yield _to_beat(goal, own, f"Best known{of_this_kind}")
    if not has_others:
        return
    if any_kind is None:
        yield "No schedule of any kind known at this size is better."
    elif any_kind != own:
        yield f"Of any kind at this size: {goal.words(any_kind)} ({any_kind.family})."


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
    return f"{which}: {goal.words(better)}. Match that for the third star."


def _best(records: Sequence[Record], point: Figures) -> Record | None:
    """The fastest of the records that are better."""
    better = [record for record in records if record.dominates(*point)]
    return min(better, key=lambda record: record.figures[:2], default=None)


def known_as_good(puzzle: SchedulePuzzle, figures: Mapping[str, float], family: str) -> str:
    """A record that is at least as good in every figure, with its file and family; empty if there is none."""
    point = figures_of(figures)
    for known in puzzle.goal.records_to_beat(family):
        if known.is_as_good_as(*point):
            said = ", ".join(filter(None, [known.by, known.family]))
            return f"{puzzle.goal.words(known)}{f' ({said})' if said else ''}"
    return ""


def figures_of(figures: Mapping[str, float]) -> Figures:
    """The figures in which schedules are compared: timesteps, elements at the peak and elements sent."""
    traffic = figures.get("traffic")
    return figures["timesteps"], int(figures["peak_memory"]), None if traffic is None else int(traffic)
