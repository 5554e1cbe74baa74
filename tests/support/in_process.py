"""Runs of submissions in this process: what tests of words, tables and pages wrote themselves needs no sandbox."""

import io
import json
import sys
import threading
from contextlib import redirect_stderr, redirect_stdout
from tempfile import TemporaryFile
from time import perf_counter
from typing import Any

import pytest

import puzzles
from puzzles.sandbox.limits import Limits
from puzzles.sandbox.worker.reading import SubmissionCode
from puzzles.sandbox.worker.runner import MODULE_NAME, DefinitionRun
from tests.support.shared_sandbox_server import LENDER


class InProcessClient:
    """Answers as the client of a sandbox does. Runs have their time limit; nothing else is limited, hidden or withheld,
    and the devices of a class share this process."""

    def open(self, given: dict[str, Any], seconds: float) -> dict[str, Any]:
        self._limits = Limits(**given["limits"])
        code = SubmissionCode(given["name"], given["text"], given["slugs"])
        self._compiled = code.compiled
        return _ended(json.dumps(code.survey()))

    def ask(self, request: dict[str, Any], seconds: float) -> dict[str, Any]:
        begin, printed = perf_counter(), io.StringIO()
        with TemporaryFile() as result, pytest.MonkeyPatch.context() as patch:
            patch.setitem(sys.modules, MODULE_NAME, None)
            patch.setattr("puzzles.sandbox.worker.stages.engine.withhold", lambda refusal: None)  # it lasts
            patch.setitem(vars(puzzles), "play", None)  # a run makes it do nothing
            with redirect_stdout(printed), redirect_stderr(printed):
                DefinitionRun(self._compiled, request | {"graded": False}, self._limits.seconds, result.fileno()).run()
            result.seek(0)
            text = result.read().decode()
        return _ended(text, printed.getvalue(), perf_counter() - begin)

    def done(self) -> None:
        """There is nothing to end."""

    def close(self) -> int:
        return 0


def _ended(result: str, printed: str = "", took: float = 0.0) -> dict[str, Any]:
    return {"ended": "exit", "code": 0, "result": result, "output": printed, "printed": len(printed), "took": took}


def without_server(patch: pytest.MonkeyPatch) -> None:
    """Lets sessions run submissions in this process."""
    patch.setattr(LENDER, "lends", False)
    patch.setattr("puzzles.judge.checkpoint._kept", threading.local())  # or later tests would get these clients
    for module in ("judge.session", "judge.checkpoint"):  # one imports it by its name
        patch.setattr(f"puzzles.{module}.new_client", InProcessClient)
