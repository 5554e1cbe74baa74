"""Classes on a transport: isolated as ever, or with every device a process of MPI.

On MPI a class runs in those processes, without a sandbox: it is for your own code.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lib import PuzzleError
from puzzles.catalog.engine import ENGINE_PUZZLES, EnginePuzzle, trials_of
from puzzles.failure import Failure, line_in, of_crash, of_refusal, of_source
from puzzles.tracks import ENGINE
from puzzles.tracks.base import Judged

from .submission import Submission
from .verdict import Graded, Verdict


def grade_on(path: str, puzzle: EnginePuzzle, on: str) -> tuple[Verdict, ...]:
    """The verdict on the class of a file, if it attempts it: here, or on MPI, which is started once for each number of
    devices that it is tried on.

    Raises:
        PuzzleError: the processes of MPI could not be started.
    """
    if on != "mpi":
        from .grader import grade_file

        return grade_file(path, [puzzle]).attempted
    from lib.engine.transports.mpi.spawn import by_mpiexec

    verdicts: list[Verdict] = []
    for devices in dict.fromkeys(make().devices for make in trials_of(puzzle)):
        request = {"path": path, "puzzle": puzzle.slug, "devices": devices}
        verdicts += Graded.of_row(
            json.loads(by_mpiexec(devices, "puzzles.grading.engine_on_mpi", json.dumps(request)))
        ).attempted
    worse = (verdict for verdict in verdicts if verdict.status != "passed")
    return (next(worse, verdicts[0]),) if verdicts else ()


def answer(request: str) -> str:
    """What one of several processes under mpiexec does: it plays the class, and judges what came of it."""
    asked = json.loads(request)
    puzzle = ENGINE_PUZZLES[asked["puzzle"]]
    verdict = Verdict(puzzle.slug, "engine", "not_attempted", puzzle.targets)
    found = _played(puzzle, Path(asked["path"]), asked["devices"])
    if isinstance(found, Failure):
        verdict = Verdict(puzzle.slug, "engine", "failed", puzzle.targets, found.reason, message=found.message)
    elif found is not None:
        status, message = "passed", ""
        if found.missed:
            status, message = "over_target", f"correct, but {'; and '.join(found.missed)}"
        stars, figures = found.stars, found.figures
        verdict = Verdict(puzzle.slug, "engine", status, puzzle.targets, None, stars, figures, message)
    return json.dumps(Graded(asked["path"], (verdict,)).row())


def _played(puzzle: EnginePuzzle, path: Path, devices: int) -> Judged | Failure | None:
    from puzzles.catalog.engine.trial import WrongResultError
    from puzzles.tracks.engine.judge import judge  # here, because numpy is slow to import

    submission = Submission.read(path)
    if submission.failure is not None:
        return submission.failure
    names: dict[str, Any] = {"__name__": "submission", "__file__": str(path)}
    try:
        exec(compile("\n".join(submission.lines), str(path), "exec"), names)
        cls = names.get(puzzle.slug)
        if cls is None:
            return None
        if not isinstance(cls, type):
            return Failure("crash", f"{puzzle.slug} is not a class; write 'class {puzzle.slug}(ShardedEngine):'")
        judged = judge(puzzle, cls, "mpi", devices)
    except WrongResultError as why:
        return Failure("rule", str(why))
    except PuzzleError as why:
        return of_refusal(why, line_in(why.__traceback__, str(path)))
    except SyntaxError as why:
        return of_source(why)
    except (Exception, SystemExit) as why:
        return of_crash(why, str(path), "; ".join(getattr(why, "__notes__", [])))
    return ENGINE.starred(puzzle, judged)
