"""Plan puzzles in the worker: calls the function on the job, and returns the split and the prediction as plain data."""

import re
from collections.abc import Mapping
from dataclasses import asdict
from difflib import get_close_matches
from typing import Any

from lib.planning.gpus import Gpu
from lib.planning.job import Job
from lib.planning.prediction import Prediction
from lib.planning.split import Split
from lib.planning.transformers import Transformer

from . import DefinitionSite, StageResult, UnplayableError, require_function, require_plain

FIELDS = tuple(Split.__dataclass_fields__)
UNKNOWN = re.compile(r"Split\.__init__\(\) got an unexpected keyword argument '(\w+)'")


def prepare(request: Mapping[str, Any]) -> Job:
    job = dict(request["job"])
    return Job(**{**job, "model": Transformer(**job["model"]), "gpu": Gpu(**job["gpu"])})


def run_definition(slug: str, function: Any, job: Job, site: DefinitionSite) -> StageResult:
    """The fields of the split that the function returns, and of the prediction if there is one."""
    require_plain(slug, function, "job", "which returns a Split")
    require_function(slug, function, "job", "job")
    try:
        returned = function(job)
    except TypeError as why:
        if named := UNKNOWN.match(str(why)):
            raise UnplayableError(_no_field(named[1])) from None
        raise
    split, predicted = returned if type(returned) is tuple and len(returned) == 2 else (returned, None)
    if type(split) is not Split:
        raise UnplayableError(f"{slug} returns {_named(split)}; return a Split, such as Split(dp=8, tp=2)")
    if predicted is not None and type(predicted) is not Prediction:
        raise UnplayableError(
            f"{slug} returns a Split and {_named(predicted)}; after the Split comes a Prediction(gib, dominates)"
        )
    data = {name: _plain(name, getattr(split, name)) for name in FIELDS}
    return StageResult({"split": data, "prediction": None if predicted is None else asdict(predicted)})


def _no_field(name: str) -> str:
    near = get_close_matches(name, FIELDS, n=1)
    return f"a Split has no {name!r}; " + (f"did you mean {near[0]!r}?" if near else f"it has {', '.join(FIELDS)}")


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
