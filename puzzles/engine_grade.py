"""Grades the engine classes of a player's file: the same verdict words, with figures and targets by name."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from lib import PuzzleError

from .engine_catalog import ENGINE_PUZZLES, EnginePuzzle, trials_of
from .inside.failure import Failure, line_in, of_crash, of_refusal, of_source
from .own_file import Submission
from .timer import TIME_LIMIT, Timer, TimeUp


@dataclass(frozen=True)
class EngineVerdict:
    """What the grader says of one engine puzzle; the words are those of `Verdict`. `figures` are of the device that
    has most; empty where the class was not correct."""

    puzzle: str
    status: str
    targets: Mapping[str, int]
    reason: str | None = None
    stars: int = 0
    figures: Mapping[str, int] = field(default_factory=dict)
    message: str = ""

    def as_json(self) -> dict[str, Any]:
        return {
            "puzzle": self.puzzle,
            "status": self.status,
            "reason": self.reason,
            "stars": self.stars,
            "figures": dict(self.figures),
            "target": dict(self.targets),
            "message": self.message,
        }


def grade_engine(
    path: str,
    puzzles: Iterable[EnginePuzzle] = ENGINE_PUZZLES.values(),
    seconds: float = TIME_LIMIT,
    on: str = "inprocess",
    devices: int | None = None,
) -> tuple[EngineVerdict, ...]:
    """The verdicts on the classes that a file defines; puzzles whose class is not there, or is still the starter,
    are left out. With `devices`, by the trials on so many only."""
    submission = Submission.read(Path(path))
    wanted = [p for p in puzzles if submission.defines(p.slug) and not _untouched(p, submission)]
    return tuple(_grade(puzzle, submission, seconds, on, devices) for puzzle in wanted)


def _untouched(puzzle: EnginePuzzle, submission: Submission) -> bool:
    """Whether the class is as the starter has it; comments do not count."""
    if submission.problem is not None:
        return False
    tree = ast.parse("\n".join(submission.lines))
    mine = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == puzzle.slug]
    return bool(mine) and ast.dump(mine[-1]) == ast.dump(ast.parse(puzzle.starter).body[0])


def _grade(puzzle: EnginePuzzle, submission: Submission, seconds: float, on: str, devices: int | None) -> EngineVerdict:
    from .engine_catalog.trial import Wrong
    from .engine_judge import judge  # here, because numpy is slow to import

    path, start = str(submission.path), submission.start_of(puzzle.slug)

    def failed(failure: Failure) -> EngineVerdict:
        return EngineVerdict(puzzle.slug, "failed", puzzle.targets, failure.reason, message=failure.message)

    if submission.problem is not None:
        return failed(of_source(submission.problem))
    timer = Timer(seconds)
    with submission.environment() as names:
        try:
            timer.run(lambda: exec(submission.code, names))  # type: ignore[arg-type]  # there is code if no problem
            cls = names.get(puzzle.slug)
            if not isinstance(cls, type):
                return failed(Failure("crash", f"{puzzle.slug} is not a class; write 'class {puzzle.slug}'", start))
            judged = timer.run(lambda: judge(puzzle, cls, on, devices))
        except TimeUp:
            words = f"time was up after {seconds:g} s; look for a loop that does not end, or use --time-limit"
            return failed(Failure("timeout", words, timer.line_in(path) or start))
        except Wrong as why:
            return failed(Failure("rule", str(why), start))
        except PuzzleError as why:
            return failed(of_refusal(why, line_in(why.__traceback__, path) or start))
        except (Exception, SystemExit, GeneratorExit) as why:
            return failed(of_crash(why, path, "; ".join(getattr(why, "__notes__", [])), start))
    passed = not judged.missed
    return EngineVerdict(
        puzzle.slug,
        "passed" if passed else "over_target",
        puzzle.targets,
        stars=3 if passed else 1,
        figures={name: judged.figures[name] for name in puzzle.targets},
        message="" if passed else f"correct, but {'; and '.join(judged.missed)}",
    )


def grade_on(path: str, puzzle: EnginePuzzle, on: str) -> tuple[EngineVerdict, ...]:
    """The same here, or with every device a process of MPI: started once for each number of devices."""
    if on != "mpi":
        return grade_engine(path, [puzzle], on=on)
    from lib.engine.mpiexec import by_mpiexec

    graded: list[EngineVerdict] = []
    for devices in dict.fromkeys(make().devices for make in trials_of(puzzle)):
        request = {"path": path, "puzzle": puzzle.slug, "devices": devices}
        told = json.loads(by_mpiexec(devices, "puzzles.engine_grade", json.dumps(request)))
        graded += [EngineVerdict(**verdict) for verdict in told]
    worse = (verdict for verdict in graded if verdict.status != "passed")
    return (next(worse, graded[0]),) if graded else ()


def answer(request: str) -> str:
    """What one of several processes under mpiexec does."""
    asked = json.loads(request)
    puzzle = ENGINE_PUZZLES[asked["puzzle"]]
    verdicts = grade_engine(asked["path"], [puzzle], on="mpi", devices=asked["devices"])
    return json.dumps([asdict(verdict) for verdict in verdicts])
