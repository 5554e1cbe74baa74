"""The engine puzzles' references and trials: performed here or in each process of MPI; files graded."""

import json
import re
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

from puzzles.catalog.engine import ENGINE_PUZZLES, EnginePuzzle, trials_of
from puzzles.catalog.engine.trial import Performed, Trial, WrongResultError
from puzzles.judge.grader import grade_file
from puzzles.judge.verdict import Verdict
from puzzles.sandbox.worker.stages.engine_trial import launched, run_trial
from puzzles.tracks.engine.judge import asked, require_right, score_figures, size_of
from puzzles.tracks.outcomes import Score

SOLUTIONS = Path(__file__).parents[2] / "solutions" / "engine"

REFERENCES = {
    match[1]: path
    for path in sorted(SOLUTIONS.glob("*.py"))
    for match in re.finditer(r"^class (\w+)\(", path.read_text(encoding="utf-8"), re.MULTILINE)
    if match[1] in ENGINE_PUZZLES
}


def reference(slug: str) -> type:
    """The class that solves a puzzle."""
    found: type = getattr(import_module(f"solutions.engine.{REFERENCES[slug].stem}"), slug)
    return found


def verdict_on(slug: str, path: Path) -> Verdict:
    """The grader's, on a player's file."""
    return grade_file(str(path), [ENGINE_PUZZLES[slug]]).verdicts[0]


def perform(trial: Trial, cls: type, on: str = "inprocess") -> Performed:
    """Performs a trial outside the sandbox, in this process or on MPI, with a class that is trusted."""
    given = asked(trial)
    return Performed(*run_trial(given, launched(given, cls, on))).priced(trial)


def score_class(puzzle: EnginePuzzle, cls: type) -> Score:
    """Performs all trials of a puzzle here: the score of the first, with the targets that any misses.

    Raises:
        WrongResultError: naming device, call and place of the first wrong number.
        Exception: what the class raises.
    """
    trials = [make() for make in trials_of(puzzle)]
    scores = []
    for trial in trials:
        where = "" if trial is trials[0] else f"tried with {size_of(trial, trials[0])}: "
        try:
            performed = perform(trial, cls)
            require_right(trial, performed)
            score = score_figures(puzzle, trial, performed, performed)
        except WrongResultError as why:
            raise WrongResultError(where + str(why)) from None
        scores.append(score._replace(missed=tuple(where + words for words in score.missed)))
    return scores[0]._replace(missed=next((score.missed for score in scores if score.missed), ()))


def numbers_of_devices() -> list[int]:
    return sorted({make().devices for puzzle in ENGINE_PUZZLES.values() for make in trials_of(puzzle)})


def readings(devices: int, on: str = "inprocess") -> dict[str, Any]:
    """The meters of all trials on so many devices, by "slug, number of the trial"; the results are right."""
    found = {}
    for slug, puzzle in ENGINE_PUZZLES.items():
        for number, make in enumerate(trials_of(puzzle)):
            trial = make()
            if trial.devices == devices:
                performed = perform(trial, reference(slug), on)
                require_right(trial, performed)
                found[f"{slug}, {number}"] = [[asdict(r) for r in after] for after in performed.readings]
    return found


def answer(request: str) -> str:
    """The readings, in each process under mpiexec."""
    return json.dumps(readings(int(request), "mpi"))
