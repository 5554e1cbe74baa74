"""A layout puzzle: the texts that every puzzle has, a graph, how many operators may be configured, and two limits.

It is read from its file, which has the graph as data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from lib.layout import Graph
from lib.layout.graph import Strategy
from lib.layout.notation import graph_from_data
from lib.ledger.algebra import counted
from puzzles.catalog.fields import NO_LIMIT, Fields
from puzzles.catalog.puzzle import Puzzle, texts_of


@dataclass(frozen=True, kw_only=True)
class LayoutPuzzle(Puzzle):
    """A function to write, which configures up to `annotations` operators; the breadth-first rule does the rest.

    The target, for two stars, is what the exact planner finds under the cap with partial sums all-reduced. Three stars
    are for `best`, what it finds with reduce-scatters too: nothing moves less.
    """

    build: Callable[[], Graph]
    annotations: int
    memory_cap: int
    """Bytes held by each device."""
    target: int
    """Bytes moved by all devices together."""
    best: int
    """The same for three stars; at most the target."""
    least: int | None = None
    """The same if operators may also split parts of axes and leave devices unused, where that is less."""
    given: Mapping[str, Strategy] = field(default_factory=dict)
    """Operators that are already configured."""
    may_change: bool = False
    """True if the player may reconfigure those."""
    is_proven: bool = False
    """True if the exact planner has shown that nothing moves less than `best`."""

    def graph(self) -> Graph:
        """A new graph, with the given operators configured. Dimensions are split into equal parts only, as the bounds
        are of such plans, unless the graph itself is `uneven`."""
        graph = self.build()
        graph.uneven = bool(graph.uneven)
        for name, strategy in self.given.items():
            graph.shard(name, strategy)
        return graph

    @property
    def limits(self) -> str:
        """Both limits and the number of operators, in words."""
        operators = counted(self.annotations, "operator")
        third = f", {self.best:,} for three stars" if self.best < self.target else ""
        return (
            f"configure at most {operators}; move at most {self.target:,} bytes{third}; "
            f"hold at most {self.memory_cap:,} bytes on each device"
        )


def read_puzzle(slug: str, fields: Fields) -> LayoutPuzzle:
    targets = fields.table("targets", {"bytes": NO_LIMIT, "memory": NO_LIMIT})
    moved = targets.number("bytes", least=0)
    data = {"uneven": False, **fields.table("graph").rest()}
    graph = graph_from_data(data)
    puzzle = LayoutPuzzle(
        slug=slug,
        build=lambda: graph_from_data({name: part for name, part in data.items() if name != "configured"}),
        given=dict(graph.strategies),
        annotations=fields.number("annotations"),
        memory_cap=targets.number("memory"),
        target=moved,
        best=targets.number("best", moved, least=0),
        least=targets.number("least", least=0) if "least" in targets else None,
        may_change=fields.flag("may_change"),
        is_proven=targets.flag("proven"),
        **texts_of(fields),
    )
    targets.done()
    return puzzle
