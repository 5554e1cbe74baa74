"""Functions in the worker: a schedule, which every rank runs; a layout and a plan, which are called once.

A stage here is a class, whose object imports what its track needs when it is made: a server for schedules loads neither
numpy, which layouts need, nor the planner's jobs. The result is plain data: a trace, strategies or the fields of a
split, which the judge in the other process does not trust. Rejected: one module for each, which had a function or two;
one stage for all three that looks at the request, which a track from outside could not join.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict
from difflib import get_close_matches
from types import FrameType
from typing import TYPE_CHECKING, Any

from lib import DeadlockError, Model, PuzzleError, Setting, Size, run, trace_to_json
from lib import Dist as Dist  # loaded before a definition's time begins
from lib.errors import Sentence
from lib.ledger.setting import setting_from_json
from puzzles.failure import line_in, of_crash, of_refusal

from . import DefinitionSite, StageResult, UnplayableError, require_function, require_plain

if TYPE_CHECKING:
    from lib.layout import Graph
    from lib.planning.job import Job

# --- A schedule ---


class Schedule:
    """Runs the function on every rank, and returns the trace."""

    def prepare(self, request: Mapping[str, Any]) -> tuple[Size, Setting]:
        """The problem size (layers, batches, ranks), and the setting if it is not the classic one."""
        return Size(*request["size"]), setting_from_json(request.get("setting") or {"costs": "classic"})

    def run_definition(self, slug: str, function: Any, game: tuple[Size, Setting], site: DefinitionSite) -> StageResult:
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

    def work_of(self, frame: FrameType) -> str:
        """The rank and the time of a frame that runs one rank: 'rank 0, t=3'; empty for any other frame."""
        model = frame.f_locals.get("model") if frame.f_globals.get("__name__") == run.__module__ else None
        return f"rank {model.rank}, t={model.time:g}" if isinstance(model, Model) else ""


def require_schedule(slug: str, function: Callable[..., Any]) -> None:
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise UnplayableError(f"there is a 'yield' in {slug}, so calling it runs none of its lines; take it out")
    require_function(slug, function, "model", "model")


# --- A layout ---


class Layout:
    """Calls the function on the graph, and returns only the strategies that it has set."""

    def __init__(self) -> None:
        from lib.layout.notation import graph_from_data  # here, since a schedule needs no numpy
        from puzzles.sandbox.plain_data import pack

        self.graph_from_data, self.pack = graph_from_data, pack

    def prepare(self, request: Mapping[str, Any]) -> Graph:
        """The puzzle's graph, with the given strategies set."""
        return self.graph_from_data(request["graph"])

    def run_definition(self, slug: str, function: Any, graph: Graph, site: DefinitionSite) -> StageResult:
        require_plain(slug, function, "graph", "because nothing waits here")
        require_function(slug, function, "graph", "graph")
        returned = function(graph)
        if returned is not None and returned is not graph:
            raise UnplayableError(
                f"{slug} returns a {type(returned).__name__}, which is not used; configure operators of the graph, "
                "such as with graph.shard('matmul', ((2, 1), (1, 4)))"
            )
        return StageResult({"strategies": self.pack(graph.strategies), "outs": self.pack(graph.outs)})


# --- A plan ---


UNKNOWN = re.compile(r"Split\.__init__\(\) got an unexpected keyword argument '(\w+)'")


class Plan:
    """Calls the function on the job, and returns the split and the prediction."""

    def __init__(self) -> None:
        from lib.planning import job, split  # here, since a schedule needs no planner

        self.job, self.split = job, split
        self.fields = tuple(split.Split.__dataclass_fields__)

    def prepare(self, request: Mapping[str, Any]) -> Job:
        given = dict(request["job"])
        model, gpu = self.job.Transformer(**given["model"]), self.job.Gpu(**given["gpu"])
        return self.job.Job(**{**given, "model": model, "gpu": gpu})

    def run_definition(self, slug: str, function: Any, job: Job, site: DefinitionSite) -> StageResult:
        """The fields of the split that the function returns, and of the prediction if there is one."""
        require_plain(slug, function, "job", "which returns a Split")
        require_function(slug, function, "job", "job")
        try:
            returned = function(job)
        except TypeError as why:
            if named := UNKNOWN.match(str(why)):
                raise UnplayableError(_no_field(named[1], self.fields)) from None
            raise
        split, predicted = returned if type(returned) is tuple and len(returned) == 2 else (returned, None)
        if type(split) is not self.split.Split:
            raise UnplayableError(f"{slug} returns {_named(split)}; return a Split, such as Split(dp=8, tp=2)")
        if predicted is not None and type(predicted) is not self.split.Prediction:
            raise UnplayableError(
                f"{slug} returns a Split and {_named(predicted)}; after the Split comes a Prediction(gib, dominates)"
            )
        data = {name: _plain(name, getattr(split, name)) for name in self.fields}
        return StageResult({"split": data, "prediction": None if predicted is None else asdict(predicted)})


def _no_field(name: str, fields: tuple[str, ...]) -> str:
    near = get_close_matches(name, fields, n=1)
    return f"a Split has no {name!r}; " + (f"did you mean {near[0]!r}?" if near else f"it has {', '.join(fields)}")


def _named(given: Any) -> str:
    return "nothing" if given is None else f"an object of type {type(given).__name__}"


def _plain(name: str, given: Any) -> Any:
    """A field as JSON can write it."""
    if type(given) is tuple and all(type(one) is int for one in given):
        return list(given)
    if type(given) not in (int, str, bool):
        advice = "; divide with //" if type(given) is float else ""
        raise UnplayableError(f"{name} of a Split is a whole number, a text or a flag; got {given!r:.40}{advice}")
    return given
