"""Judges a player's strategies: propagation completes them on a graph of our own, and the plan is measured."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from lib import PuzzleError
from lib.layout import GraphPlan, propagate
from lib.layout.graph import Out, Strategy
from lib.layout.notation import graph_to_data
from puzzles.catalog.layout import LayoutPuzzle
from puzzles.failure import Failure, of_refusal, sanitized
from puzzles.sandbox.plain_data import unpack
from puzzles.tracks import base
from puzzles.tracks.base import Workbench, run_once
from puzzles.tracks.outcomes import Row, RunRequest, Score

Configured = Mapping[str, tuple[Strategy, Out | None]]
"""By operator: its strategy and its out-strategy."""

MAX_PAYERS = 3
"""Edges or operators that a message names."""

MAX_COUNT = 1 << 20
"""Parts of a dimension, and operators."""


class Judge(base.Judge[LayoutPuzzle]):
    stage = "puzzles.sandbox.worker.stages.functions:Layout"
    reasons = ("layout", "annotations")

    def requests(self, puzzle: LayoutPuzzle) -> Iterator[RunRequest]:
        """The only run of a layout: on the puzzle's graph."""
        yield request_of(puzzle, graded=True)

    def kept(self, row: Row) -> str:
        """The strategies as JSON, from which the plan can be drawn again; empty if there are none."""
        strategies = strategies_of(row)
        return "" if isinstance(strategies, Failure) else json.dumps(strategies)

    def restored(self, puzzle: LayoutPuzzle, kept: str) -> GraphPlan | None:
        """The plan of strategies that `kept` gave; None if there are none."""
        given = {
            name: (tuple(map(tuple, one)), None if out is None else tuple(out))
            for name, (one, out) in json.loads(kept or "{}").items()
        }
        plan = completed(puzzle, given) if kept else None
        return None if isinstance(plan, Failure) else plan


def request_of(puzzle: LayoutPuzzle, graded: bool = False) -> RunRequest:
    """A run on the puzzle's graph; of a graded one the planners are withheld."""
    data = {"graph": graph_to_data(puzzle.graph()), "graded": graded}
    return RunRequest("the graph", data, lambda row: score_strategies(puzzle, row))


def score_strategies(puzzle: LayoutPuzzle, row: Row) -> Score | Failure:
    """The bytes that move and that are held, and the limits that they miss."""
    strategies = strategies_of(row)
    found = strategies if isinstance(strategies, Failure) else completed(puzzle, strategies)
    if isinstance(found, Failure):
        return found
    missed = tuple(_missed(found, puzzle))
    stars = 1 if missed else 3 if found.bytes <= puzzle.best else 2
    return Score({"bytes": found.bytes, "memory": found.memory}, missed, stars)


def plan_of_file(puzzle: LayoutPuzzle, bench: Workbench) -> GraphPlan | Failure:
    """The plan of the player's file, whatever it costs; or why there is none."""
    row = run_once(request_of(puzzle), bench)
    strategies = row if isinstance(row, Failure) else strategies_of(row)
    return strategies if isinstance(strategies, Failure) else completed(puzzle, strategies)


def strategies_of(row: Row) -> Configured | Failure:
    """The strategies that a run sent back, each with its out-strategy."""
    try:
        given, outs = unpack(row.get("strategies")), unpack(row.get("outs"))
        if not isinstance(given, dict) or not isinstance(outs, dict) or len(given) > MAX_COUNT:
            raise ValueError("they are not a dictionary")
        return {
            _name(name): (tuple(map(_parts, _collection(one))), _parts(outs[name]) if name in outs else None)
            for name, one in given.items()
        }
    except (ValueError, TypeError, RecursionError, MemoryError) as why:
        return Failure("layout", sanitized(f"the strategies that the graph was left with cannot be read: {why}")[:300])


def completed(puzzle: LayoutPuzzle, strategies: Configured) -> GraphPlan | Failure:
    """The plan that propagation makes of these strategies, on a fresh graph; or why there is none."""
    graph = puzzle.graph()
    given = {name: (strategy, graph.outs.get(name)) for name, strategy in graph.strategies.items()}
    mine = {name: one for name, one in strategies.items() if given.get(name) != one}
    taken = [name for name in mine if name in puzzle.given]
    if taken and not puzzle.may_change:
        return Failure("annotations", f"'{taken[0]}' is given as {puzzle.given[taken[0]]}; configure other operators")
    if len(mine) > puzzle.annotations:
        names = sanitized(", ".join(mine))[:200]
        return Failure(
            "annotations", f"{len(mine)} operators are configured, {names}; this puzzle allows {puzzle.annotations}"
        )
    try:
        for name, (strategy, out) in mine.items():
            graph.shard(name, strategy, out)
        return propagate(graph)
    except PuzzleError as why:
        return of_refusal(why)


def _name(name: Any) -> str:
    if not isinstance(name, str):
        raise ValueError("an operator's name is a string")
    return name


def _collection(value: Any) -> list[Any] | tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise ValueError("a strategy states, for each input, into how many parts each dimension is split")
    return value


def _parts(value: Any) -> tuple[int, ...]:
    parts = tuple(_collection(value))
    if not all(type(n) is int and -MAX_COUNT <= n <= MAX_COUNT for n in parts):
        raise ValueError("a dimension is split into a whole number of parts")
    return parts


def _missed(found: GraphPlan, puzzle: LayoutPuzzle) -> list[str]:
    """Sentences on each missed limit: by how much, and what causes it."""
    said = []
    if found.bytes > puzzle.target:
        who = "; ".join(text for _, text in found.paying()[:MAX_PAYERS])
        said.append(f"{found.bytes:,} bytes move, the target is {puzzle.target:,}: {who}")
    if found.memory > puzzle.memory_cap:
        size = found.graph.itemsize
        held = {name: found.layout(name).elements * size for name in found.graph.shapes}
        largest = sorted(held, key=lambda name: -held[name])[:MAX_PAYERS]
        who = ", ".join(f"'{name}' takes {held[name]:,}" for name in largest)
        said.append(f"each device holds {found.memory:,} bytes, the cap is {puzzle.memory_cap:,}: {who}")
    return said
