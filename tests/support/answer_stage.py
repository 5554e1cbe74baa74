"""Worker stage of the fourth track in `test_track_protocol`: calls a function and sends back what it returns."""

from collections.abc import Mapping
from typing import Any

from puzzles.failure import Failure
from puzzles.sandbox.worker.stages import DefinitionSite, StageResult, UnplayableError


def prepare(request: Mapping[str, Any]) -> int:
    """The argument."""
    return int(request["argument"])


def run_definition(slug: str, function: Any, argument: int, site: DefinitionSite) -> StageResult:
    """Its result for the argument."""
    if not callable(function):
        raise UnplayableError(f"{slug} is not a function; write 'def {slug}(n):'")
    answer = function(argument)
    if answer is None:
        return StageResult(failure=Failure("silence", "there was no answer", site.line))
    return StageResult({"answer": answer})
