"""Positions of a graph's boxes: operators from top to bottom by depth, each source in the row above its first reader.

Edges run in the gaps between rows, each tensor on its own track; edges that pass a row take a lane at the right.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from drawing.pen import Point
from lib.layout import Edge, Graph

ACROSS, TRACK, LANE = 24.0, 8.0, 16.0
CORNER = 8.0
"""How near to the corner of a box no edge leaves it."""
ABOVE, BELOW = 10.0, 20.0
"""Room in a gap above its first track and below its last."""


class BoxSize(NamedTuple):
    width: float
    height: float


class Box(NamedTuple):
    """Left, top, width, height, and the number of the row."""

    x: float
    y: float
    width: float
    height: float
    row: int


def rows_of(graph: Graph) -> list[list[str]]:
    """Names by row: operators in the order of the program, then the sources that the next row is first to read."""
    depth: dict[str, int] = {}
    for name, op in graph.operators.items():
        depth[name] = 1 + max((depth.get(tensor, 0) for tensor in op.inputs), default=0)
    for name in graph.sources:
        readers = [depth[op.name] for op, _ in graph.consumers(name)]
        depth[name] = min(readers, default=1) - 1
    order = [*graph.operators, *graph.sources]
    rows = [[name for name in order if depth[name] == d] for d in range(max(depth.values(), default=-1) + 1)]
    return [row for row in rows if row]


class Placing:
    """Boxes and the paths of edges, for boxes of these sizes."""

    def __init__(self, graph: Graph, edges: Iterable[Edge], sizes: Mapping[str, BoxSize], top: float) -> None:
        self.graph = graph
        self.edges = list(edges)
        rows = rows_of(graph)
        row_of = {name: i for i, row in enumerate(rows) for name in row}
        far = [e.tensor for e in self.edges if row_of[e.operator] - row_of[e.tensor] > 1]
        self.lanes = {tensor: i for i, tensor in enumerate(dict.fromkeys(far))}
        tracks: list[list[str]] = [[] for _ in rows]
        for edge in self.edges:
            for gap in {row_of[edge.tensor], row_of[edge.operator] - 1}:
                if edge.tensor not in tracks[gap]:
                    tracks[gap].append(edge.tensor)
        self.tracks = tracks
        self.boxes: dict[str, Box] = {}
        self.bottoms: list[float] = []
        """By row: where the gap below it begins."""
        y = top
        for i, row in enumerate(rows):
            x = 0.0
            for name in row:
                self.boxes[name] = Box(x, y, *sizes[name], i)
                x += sizes[name].width + ACROSS
            self.bottoms.append(y + max(sizes[name].height for name in row))
            y = self.bottoms[-1] + ABOVE + TRACK * len(tracks[i]) + BELOW
        self.right = max((box.x + box.width for box in self.boxes.values()), default=0.0) + ACROSS
        self.width = self.right + LANE * len(self.lanes)
        self.height = self.bottoms[-1] if self.bottoms else top

    def path(self, edge: Edge) -> list[Point]:
        """An edge from the lower side of a tensor's box to its port at the operator."""
        source, target = self.boxes[edge.tensor], self.boxes[edge.operator]
        ports = len(self.graph.operators[edge.operator].inputs)
        x0, x1 = source.x + source.width / 2, target.x + target.width * (edge.place + 1) / (ports + 1)
        near = target.row - source.row == 1
        if near and source.x + CORNER < x1 < source.x + source.width - CORNER:
            return [(x1, source.y + source.height), (x1, target.y)]
        first, last = (self._track(gap, edge.tensor) for gap in (source.row, target.row - 1))
        turns = [(x0, first)]
        if not near:
            lane = self.right + LANE * (self.lanes[edge.tensor] + 0.5)
            turns += [(lane, first), (lane, last)]
        return [(x0, source.y + source.height), *turns, (x1, last), (x1, target.y)]

    def _track(self, gap: int, tensor: str) -> float:
        return self.bottoms[gap] + ABOVE + TRACK * self.tracks[gap].index(tensor)
