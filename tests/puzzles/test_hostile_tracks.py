"""Hostile classes and layouts get their verdict, as schedules do.

One thing is known to go undetected: a class that changes its meter, and shows flops or memory that some class could
have. Results and bytes cannot be forged; flops and peaks are counted in the same process as the player's code.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from puzzles.catalog.engine import ENGINE_PUZZLES, trials_of
from puzzles.grading.verdict import Verdict
from puzzles.sandbox.limits import MIB, Limits
from puzzles.sandbox.plain_data import pack
from puzzles.tracks import track_of
from tests.puzzles.test_hostile import expect, nothing_is_left
from tests.support import hostile_tracks
from tests.support.selection import some_of_each
from tests.support.verdicts import verdict_on

QUICK = Limits(seconds=0.5, memory=1024 * MIB, output=MIB, files=MIB)
SLOW = QUICK._replace(seconds=10)


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    with nothing_is_left():
        yield


def verdict(source: str, slug: str, allowed: tuple[str | None, ...]) -> Verdict:
    limits = QUICK if "timeout" in allowed else SLOW
    return verdict_on(slug, source, limits)


@pytest.mark.sampled(1)
@some_of_each(hostile_tracks.SOLVED)
def test_a_right_class_with_something_added(name: str) -> None:
    old, new, *allowed = hostile_tracks.SOLVED[name]
    assert old in hostile_tracks.PARALLEL
    source = hostile_tracks.IMPORTS + hostile_tracks.PARALLEL.replace(old, new, 1)
    expect(verdict(source, "DataParallel", tuple(allowed)), tuple(allowed))


@pytest.mark.sampled(1)
@some_of_each(hostile_tracks.BODIES)
def test_a_class_that_computes_nothing(name: str) -> None:
    body, *allowed = hostile_tracks.BODIES[name]
    source = hostile_tracks.IMPORTS + hostile_tracks.wrong(body)
    expect(verdict(source, "DataParallel", tuple(allowed)), tuple(allowed))


@pytest.mark.sampled(1)
@some_of_each(hostile_tracks.RETURNS)
def test_a_class_that_returns_something_odd(name: str) -> None:
    value, *allowed = hostile_tracks.RETURNS[name]
    source = hostile_tracks.IMPORTS + hostile_tracks.wrong("pass").replace("return x", f"return {value}")
    expect(verdict(source, "DataParallel", tuple(allowed)), tuple(allowed))


@pytest.mark.sampled(1)
@some_of_each(hostile_tracks.LAYOUTS)
def test_a_layout(name: str) -> None:
    body, *allowed = hostile_tracks.LAYOUTS[name]
    found = verdict(f"def ffn(graph):\n    {body}\n", "ffn", tuple(allowed))
    expect(found, tuple(allowed))


@pytest.mark.slow
def test_arrays_of_the_module_are_charged_to_every_device() -> None:
    source = (hostile_tracks.SOLUTIONS / "engine" / "tensor_parallel.py").read_text(encoding="utf-8")
    spare = source.replace("def relu", "SPARE = np.zeros(1000)\n\n\ndef relu", 1)
    plain, found = (verdict(text, "TensorParallel", ()) for text in (source, spare))
    assert found.figures["weights"] == plain.figures["weights"] + 8000
    assert found.status == "over_target"


@pytest.mark.sampled(3)
@pytest.mark.parametrize("slug", ENGINE_PUZZLES)
def test_what_a_class_is_asked_holds_nothing_of_what_is_expected(slug: str) -> None:
    """Every number that the worker gets is one of the inputs."""
    puzzle = ENGINE_PUZZLES[slug]
    for make, request in zip(trials_of(puzzle), track_of(puzzle.slug).judge.requests(puzzle), strict=True):
        trial, sent = make(), json.dumps(request.data)
        inputs = json.dumps(pack([trial.params, [c.arguments for c in trial.calls], trial.stream and trial.stream[0]]))
        for call in trial.calls:
            for right in call.wanted or ():
                for array in right.values() if isinstance(right, dict) else [right]:
                    text = json.dumps(pack(array))
                    assert text not in sent or text in inputs, call.method
