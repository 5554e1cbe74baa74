"""Every reference with its weights loaded again in each use: what that costs, and that the player is told why."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from inspect import isawaitable
from typing import Any

import pytest

from lib import Model, run
from puzzles.catalog.schedule import CLASSICS, PUZZLES
from puzzles.tracks import track_of
from puzzles.tracks.outcomes import Score
from puzzles.tracks.schedule.judge import score_trace
from tests.support.solved import reference_of


class LoadedInEachUse(MutableMapping[Any, Any]):
    """A rank's weights, of which those that are as they were loaded are not kept: each look-up loads them again."""

    def __init__(self, model: Model, kept: Any) -> None:
        self.kept, self.load, self.loaded, self.again = kept, model.load_weights, [], {}  # type: ignore[var-annotated]
        model.load_weights = self.loads  # type: ignore[method-assign]

    def loads(self, *given: Any, **named: Any) -> Any:
        made = self.load(*given, **named)
        self.loaded.append((made[0], given, named))
        return made

    def __setitem__(self, key: Any, value: Any) -> None:
        for weight, given, named in self.loaded:
            if weight is value:
                self.again[key] = given, named
                return
        self.again.pop(key, None)
        self.kept[key] = value

    def __getitem__(self, key: Any) -> Any:
        if key not in self.again:
            return self.kept[key]
        given, named = self.again[key]
        return self.load(*given, **named)[0]

    def __delitem__(self, key: Any) -> None:
        if self.again.pop(key, None) is None:
            del self.kept[key]

    def __iter__(self) -> Iterator[Any]:
        return iter([*self.again, *self.kept])

    def __len__(self) -> int:
        return len(self.again) + len(self.kept)


def loading_again(slug: str) -> Callable[[Model], Awaitable[None]]:
    """The reference of a puzzle on such weights."""
    reference = reference_of(slug)

    async def schedule(model: Model) -> None:
        weights, *others = model.storage()
        again = LoadedInEachUse(model, weights)
        model.storage = lambda: (again, *others)  # type: ignore[method-assign]
        done = reference(model)
        if isawaitable(done):
            await done

    return schedule


@pytest.mark.sampled(4)
@pytest.mark.parametrize("slug", PUZZLES)
def test_loading_again_costs_the_second_star_only_where_the_puzzle_says_so(slug: str) -> None:
    puzzle = PUZZLES[slug]
    outcome = run(loading_again(slug), *puzzle.goal.size, setting=puzzle.goal.setting)
    assert outcome.error is None
    score = score_trace(outcome.trace, puzzle, puzzle.goal.size)
    assert isinstance(score, Score)
    if slug in CLASSICS.slugs:
        assert score.missed == ()
    for missed in score.missed:
        assert missed.startswith("in a second "), missed
        assert re.search(r"line \d+ loads layers? [0-9, -]+ again, and the target is", missed), missed
        assert score.figures["peak_memory"] < puzzle.goal.memory_limit <= score.figures["lasting_peak"]
        (rule,) = [section for section in track_of(slug).words.sections(puzzle) if section.title == "The memory target"]
        assert "that it is loaded" in str(rule)
        assert "Load" in score.advice
