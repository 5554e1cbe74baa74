"""Scores a player's split: it is played in the ledger, and the plan's time and memory are compared with the targets."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from functools import lru_cache
from typing import Any

from lib import PuzzleError
from lib.planning import Job, Plan, Prediction, Split, plan
from lib.planning.changes import fastest_change, memory_advice
from lib.planning.cost_model import units_of
from lib.planning.job import GIB
from lib.planning.plans import family_of
from lib.planning.split import problems
from puzzles.catalog.plan.puzzle import PlanPuzzle
from puzzles.failure import Failure, sanitized
from puzzles.tracks.outcomes import Row, RunRequest, Score
from puzzles.tracks.workbench import Workbench, run_once

from .words import change_text, losses, memory_text, plan_lines, prediction_lines

MAX_NUMBER = 2**31
"""Of a field of a split."""

MAX_PLAYED, MAX_RING = 20_000, 64
"""Layers times microbatches of a replica that are played, and ranks that share a sequence: more would take minutes."""

GB = 10**9


def requests(puzzle: PlanPuzzle) -> Iterator[RunRequest]:
    """The only run of a plan: on the puzzle's job."""
    yield RunRequest("the job", {"job": asdict(puzzle.job), "graded": True}, lambda row: score_split(puzzle, row))


def score_split(puzzle: PlanPuzzle, row: Row) -> Score | Failure:
    """The time, memory and traffic of a step, and why it is not faster."""
    split = split_of(row)
    found = split if isinstance(split, Failure) else allowed(puzzle, split) or planned(puzzle.job, split)
    if isinstance(found, Failure):
        return found
    as_published = puzzle.published is not None and found.split == puzzle.published.split
    if not found.fits:
        answers = " ".join(prediction_lines(found, prediction_of(row)))
        advice = memory_advice(found.job, found.split, puzzle.fixed)
        return Failure(
            "memory", f"{found.split} does not fit: {memory_text(found)}; {advice}{answers and '. '}{answers}"
        )
    seconds = round(found.seconds, 3)
    figures = {
        "seconds": seconds,
        "gib": round(found.peak / GIB, 1),
        "gib_high": round(found.high / GIB, 1),
        "mfu": round(100 * found.mfu, 1),
        "bubble": round(100 * found.bubble, 1),
        **{f"{link}_gb": round(sent / GB, 1) for link, sent in found.by_link.items() if link != "host" or sent},
    }
    family, missed = family_of(found.split), tuple[str, ...]()
    if seconds > puzzle.seconds and not as_published:
        missed = (f"a step takes {seconds:,} s, the target is {puzzle.seconds:,} s: {losses(found)}",)
    stars = 1 if missed else 3 if as_published or puzzle.third_star(seconds, family) else 2
    lines = (*prediction_lines(found, prediction_of(row)), *plan_lines(found))
    advice = change_text(fastest_change(found.job, found.split, puzzle.fixed)) if stars < 3 else ""
    return Score(figures, missed, stars, (), advice, lines, why_matters=True, family=family)


def split_of(row: Row) -> Split | Failure:
    """The split that a run sent back, which is not trusted."""
    given = row.get("split")
    kinds: Mapping[str, tuple[type, ...]] = {"layers": (list, tuple), "sp": (bool,)}
    if not isinstance(given, dict) or not set(given) <= set(Split.__dataclass_fields__):
        return Failure("split", "the split that the function returned cannot be read; return a Split")
    for name, content in given.items():
        numbers = content if name == "layers" and isinstance(content, list | tuple) else [content]
        if not all(type(one) in (int, str, bool) for one in numbers) or len(numbers) > MAX_RING**2:
            return Failure("split", f"{name} of the split cannot be read")
        if any(type(one) is int and abs(one) >= MAX_NUMBER for one in numbers):
            return Failure("split", f"{name} of a split is less than {MAX_NUMBER:,}")
        if name in kinds and not isinstance(content, kinds[name]):
            return Failure("split", f"{name} of a split is a {kinds[name][-1].__name__}; got {content!r:.40}")
    return Split(**{**given, "layers": tuple(given.get("layers", ()))})


def prediction_of(row: Row) -> Prediction | None:
    given = row.get("prediction")
    try:
        return Prediction(**given) if isinstance(given, dict) else None
    except (PuzzleError, TypeError):
        return None


def allowed(puzzle: PlanPuzzle, split: Split) -> Failure | None:
    """Why this puzzle takes no such split."""
    for name, given in puzzle.fixed.items():
        if getattr(split, name) != given:
            return Failure("split", f"{name} is {given!r} in this puzzle; got {getattr(split, name)!r:.40}")
    return None


@lru_cache(maxsize=8)
def planned(job: Job, split: Split) -> Plan | Failure:
    """The plan of a split, or why there is none."""
    for problem in problems(job, split):
        return Failure("split", sanitized(problem))
    if split.cp > MAX_RING:
        return Failure("split", f"cp {split.cp} is too many: the game plays rings of at most {MAX_RING} ranks")
    units, _ = units_of(job, split)
    played = split.batches(job) * sum(units)
    if played > MAX_PLAYED:
        why = f"a replica has {split.batches(job):,} microbatches of {sum(units)} layers, {played:,} in a step"
        return Failure("split", f"{why}, and at most {MAX_PLAYED:,} are played; take more replicas or microbatch 2")
    return plan(job, split)


def plan_of_file(puzzle: PlanPuzzle, bench: Workbench) -> Plan | Failure:
    """The plan of the player's file, whatever it costs; or why there is none."""
    row = run_once(next(requests(puzzle)), bench)
    split = row if isinstance(row, Failure) else split_of(row)
    return split if isinstance(split, Failure) else planned(puzzle.job, split)


def kept_text(row: Row) -> str:
    """The split and the prediction as JSON, from which the run can be judged again; empty if there is no split."""
    split, predicted = split_of(row), prediction_of(row)
    if isinstance(split, Failure):
        return ""
    return json.dumps({"split": asdict(split), "prediction": predicted and asdict(predicted)})


def plan_of(puzzle: PlanPuzzle, text: str) -> Plan | None:
    split = split_of(row_of(text)) if text else Failure("split", "")
    found = split if isinstance(split, Failure) else planned(puzzle.job, split)
    return None if isinstance(found, Failure) else found


def row_of(text: str) -> Row:
    given: Any = json.loads(text)
    if not isinstance(given, dict) or isinstance(split_of(given), Failure):
        raise ValueError("this is not a split")
    return given
