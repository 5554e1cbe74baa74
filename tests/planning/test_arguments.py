"""Arguments of the planner and the solver: every field takes what it can, and refuses the rest in words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from math import inf, nan
from typing import Any

import pytest

from lib import PuzzleError
from lib.pipelines.solver import Problem, solve
from lib.planning import Gpu, Job, Split, Transformer, gpu, plan, search, transformer
from tests.support.refusals import Refused

BAD = (-1, nan, inf, 10**400, 0, 0.5, 1.5, -inf, 1e300, 1e-300, 10**30, "x", "", None, True, [])
ROW = transformer("llama-3-8b")
JOB = Job(ROW, gpu("h100"), gpus=8, batch=8, sequence=1024)
FIXED = {"pp": 1, "tp": 8, "zero": 0, "recompute": "none"}


def job(**changed: Any) -> object:
    return search(replace(JOB, **changed), 1, 1 + 1, **FIXED)


CALLS: dict[str, tuple[Callable[..., object], list[str]]] = {
    "search": (lambda **one: search(JOB, **{"best": 1, "front": 2, **FIXED, **one}),
               ["best", "front", *(field.name for field in fields(Split))]),
    "plan": (lambda **one: plan(JOB, replace(Split(dp=8), **one)), [field.name for field in fields(Split)]),
    "job": (job, [field.name for field in fields(Job)]),
    "model": (lambda **one: job(model=transformer("llama-3-8b", **one)),
              [field.name for field in fields(Transformer) if field.type in ("int", "bool")]),
    "gpu": (lambda **one: job(gpu=gpu("h100", **one)),
            [field.name for field in fields(Gpu) if field.type in ("int", "float")]),
    "solve": (lambda **one: solve(**{"ranks": 2, "microbatches": 2, "effort": 0, "proof_seconds": 0, **one}),
              ["effort", "proof_seconds", *(field.name for field in fields(Problem) if field.init)]),
}  # fmt: skip
"""What is called with one bad argument after the other, and the names of its arguments."""


@pytest.mark.parametrize("values", [BAD[:4], pytest.param(BAD, marks=pytest.mark.slow)], ids=["some", "all"])
@pytest.mark.parametrize("call", CALLS)
def test_a_bad_argument_is_refused_in_words(call: str, values: tuple[Any, ...]) -> None:
    made, names = CALLS[call]
    refused = 0
    for name in names:
        for value in values:
            try:
                made(**{name: value})
            except (PuzzleError, ValueError) as why:
                refused += bool(str(why))
    assert refused > len(values)


@pytest.mark.parametrize("name", ["best", "front"])
@pytest.mark.parametrize("value", [0, -1, 2.0, True, None, nan])
def test_a_search_finds_at_least_one_plan(name: str, value: Any) -> None:
    with Refused("no count", name=name):
        search(JOB, **{name: value}, **FIXED)
