"""Schedule puzzles in the worker: runs the function on every rank, and returns the trace."""

import inspect
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any

from lib import DeadlockError, Model, PuzzleError, Setting, Size, run, trace_to_json
from lib import Dist as Dist  # loaded before a definition's time begins
from lib.errors import Sentence
from lib.ledger.setting import setting_from_json
from puzzles.failure import line_in, of_crash, of_refusal

from . import DefinitionSite, StageResult, UnplayableError, require_function


def prepare(request: Mapping[str, Any]) -> tuple[Size, Setting]:
    """The problem size (layers, batches, ranks), and the setting if it is not the classic one."""
    return Size(*request["size"]), setting_from_json(request.get("setting") or {"costs": "classic"})


def run_definition(slug: str, function: Any, game: tuple[Size, Setting], site: DefinitionSite) -> StageResult:
    """The trace as far as the run went, and the failure that ended it, if any."""
    require_schedule(slug, function)
    size, setting = game
    outcome = run(function, *size, setting=setting)
    data: dict[str, Any] = {"trace": trace_to_json(outcome.trace)}
    error = outcome.error
    if error is None:
        return StageResult(data)
    if isinstance(error, DeadlockError) and isinstance(error.problem, Sentence):
        data["deadlock"] = {name: error.problem.facts.get(name) for name in ("waits", "lines", "cycle")}
    if isinstance(error, PuzzleError):
        return StageResult(data, of_refusal(error, line_in(error.__traceback__, site.file) or site.line))
    model = outcome.models[outcome.errors.index(error)]
    return StageResult(data, of_crash(error, site.file, f"rank {model.rank}, t={model.time:g}", site.line))


def work_of(frame: FrameType) -> str:
    """The rank and the time of a frame that runs one rank: 'rank 0, t=3'; empty for any other frame."""
    model = frame.f_locals.get("model") if frame.f_globals.get("__name__") == run.__module__ else None
    return f"rank {model.rank}, t={model.time:g}" if isinstance(model, Model) else ""


def require_schedule(slug: str, function: Callable[..., Any]) -> None:
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise UnplayableError(f"there is a 'yield' in {slug}, so calling it runs none of its lines; take it out")
    require_function(slug, function, "model", "model")
