"""The picture and the table of docs/architecture.md: rooms, what each is built on, and the modules in it.

It is drawn from the imports, so it cannot show a house that is not there: a box is a folder of `lib` or `puzzles`, or
`drawing`, with the words before the colon in its head; an arrow is an import that no chain of other arrows implies.
Imports inside functions count. Modules outside of rooms, such as `lib/errors.py`, lead to what they import.

A room stands one row above the highest room that it imports, so all arrows point down. An arrow that crosses rows has a
place in each of them, and the rows are ordered so that places lie near their neighbours (Sugiyama, Tagawa and Toda
1981). Rejected: graphviz, which is no dependency and writes another picture with each version.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from chalk.types import Diagram

from docs.generate.extended import filled
from drawing.palette import EDGE, INK, KINDS, SOFT, STROKE
from drawing.pen import box, label, lines, panel, style
from drawing.picture import Picture

ROOT = Path(__file__).parents[2]
FILE = ROOT / "docs" / "architecture.md"
TOOLS = {"puzzles/package"}
"""Folders that no other room imports, and that belong to the build."""
LAZY = "puzzles"
"""Gives notebooks `play` and `profile`, which it imports when it is asked for them; rooms import it for its search
path."""
COLOURS = {"lib": KINDS["opt_states"], "drawing": KINDS["activations"], "puzzles": "#d7e8d4"}

# --- What is drawn: rooms, and arrows between them ---


@cache
def modules() -> dict[str, Path]:
    """Every module of ours by its dotted name."""
    files = [path for name in COLOURS for path in (ROOT / name).rglob("*.py")]
    return {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in files}


def imported(name: str, when_loaded: bool = False) -> Iterator[str]:
    """The modules of ours that a module names in an import; or only those that it imports when it is loaded."""
    path = modules()[name]
    folder = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in tree.body if when_loaded else ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules())
        elif isinstance(node, ast.ImportFrom):
            above = folder[: len(folder) - node.level + 1] if node.level else []
            source = ".".join([*above, *([node.module] if node.module else [])])
            names = {f"{source}.{alias.name}" for alias in node.names}
            yield from (names & modules().keys()) or ({source} & modules().keys())


def room_of(name: str) -> str | None:
    """The folder that a module is in; None if it is outside of rooms, or a tool's."""
    top, *inner = name.split(".")
    folder = top if top == "drawing" else f"{top}/{inner[0]}" if inner else ""
    return folder if folder and (ROOT / folder / "__init__.py").is_file() and folder not in TOOLS else None


def built_on() -> dict[str, set[str]]:
    """By room: the rooms that it imports, directly or through modules outside of rooms."""
    rooms: dict[str, set[str]] = {room: set() for name in sorted(modules()) if (room := room_of(name))}
    for name in modules():
        todo, seen = [name], set[str]()
        while (room := room_of(name)) and todo:
            following = todo.pop()
            for target in {*imported(following, when_loaded=following == LAZY)} - seen:
                seen.add(target)
                other = room_of(target)
                if other is None:
                    todo.append(target)
                elif other != room:
                    rooms[room].add(other)
    return rooms


def arrows(rooms: Mapping[str, set[str]]) -> dict[str, list[str]]:
    """By room: the rooms that it imports and that no other of them is built on."""

    @cache
    def below(room: str) -> frozenset[str]:
        return frozenset(rooms[room]).union(*map(below, rooms[room]))

    return {
        room: sorted(to for to in rooms[room] if not any(to in below(other) for other in rooms[room])) for room in rooms
    }


def words(room: str) -> str:
    """What a room is, from its head: the words before the colon."""
    head = ast.get_docstring(ast.parse((ROOT / room / "__init__.py").read_text(encoding="utf-8"))) or ""
    return head.partition(":")[0]


def heights(arrows: Mapping[str, Iterable[str]]) -> dict[str, int]:
    """By name: 0 if it imports no other, otherwise one more than the highest that it imports."""

    @cache
    def height(name: str) -> int:
        return 1 + max(map(height, arrows[name]), default=-1)

    return {name: height(name) for name in arrows}


# --- The table ---


def page() -> str:
    """docs/architecture.md with a row for each room, from the lowest: its words, and its modules in the same order."""
    rows = heights(built_on())
    of_modules = heights({name: {*imported(name, when_loaded=True)} - {name} for name in modules()})
    lines = ["| room | what it is | its chapters, in the order of imports |", "|---|---|---|"]
    for room in sorted(rows, key=lambda room: (rows[room], room)):
        inside = [name for name in modules() if room_of(name) == room and not modules()[name].stem.startswith("__")]
        inside.sort(key=lambda name: (of_modules[name], name))
        links = ", ".join(
            f"[{name.removeprefix(room.replace('/', '.') + '.')}](../{modules()[name].relative_to(ROOT).as_posix()})"
            for name in inside
        )
        lines.append(f"| [`{room}/`](../{room}/__init__.py) | {words(room)} | {links} |")
    return filled(FILE.read_text(encoding="utf-8"), "rooms", lines)


# --- Where a box stands ---

WIDTH, HEIGHT = 176.0, 42.0
"""Of a box, in pixels."""
GAP, SPACE, LANE = 30.0, 22.0, 8.0
"""Between rows, between places of a row, and the width of an arrow that crosses a row."""
ROUNDS = 8


class Place(NamedTuple):
    """A room in its row, or an arrow from it that crosses the row."""

    room: str
    row: int
    to: str = ""
    """Where the arrow leads; empty for a room."""


def rows_and_links(arrows: Mapping[str, list[str]]) -> tuple[list[list[Place]], list[tuple[Place, Place]]]:
    """The rows from the bottom, and the links from a place to one in the row below."""

    height = heights(arrows)
    rows: list[list[Place]] = [[] for _ in range(1 + max(height.values()))]
    links: list[tuple[Place, Place]] = []
    for room in arrows:
        rows[height[room]].append(Place(room, height[room]))
    for room, targets in arrows.items():
        for to in targets:
            crossed = [Place(room, row, to) for row in range(height[room] - 1, height[to], -1)]
            for place in crossed:
                rows[place.row].append(place)
            links += pairwise([Place(room, height[room]), *crossed, Place(to, height[to])])
    return rows, links


def ordered(rows: Sequence[list[Place]], links: Sequence[tuple[Place, Place]]) -> None:
    """Sorts each row by where its places have their neighbours in the next row, upwards and downwards in turn."""
    for _ in range(ROUNDS):
        for near, row in [*pairwise(rows), *pairwise(reversed(rows))]:
            at = {place: (k + 0.5) / len(near) for k, place in enumerate(near)}
            neighbours = {
                place: [
                    at[other] for pair in links if place in pair for other in pair if other != place and other in at
                ]
                for place in row
            }
            row.sort(key=lambda place: fmean(neighbours[place] or [0.5]))


def columns(rows: Sequence[Sequence[Place]]) -> dict[Place, float]:
    """Where the middle of each place is, with every row centred."""
    widths = [[LANE if place.to else WIDTH for place in row] for row in rows]
    totals = [sum(row) + SPACE * (len(row) - 1) for row in widths]
    middles: dict[Place, float] = {}
    for row, sizes, total in zip(rows, widths, totals):
        x = (max(totals) - total) / 2
        for place, size in zip(row, sizes):
            middles[place] = x + size / 2
            x += size + SPACE
    return middles


def ends(links: Sequence[tuple[Place, Place]], middles: Mapping[Place, float]) -> Iterator[tuple[float, float]]:
    """Where each link leaves the upper place and meets the lower one: arrows share the side of a box evenly."""
    for link in links:
        xs = []
        for side, place in enumerate(link):
            others = sorted(middles[other[1 - side]] for other in links if other[side] == place)
            share = (others.index(middles[link[1 - side]]) + 1) / (len(others) + 1) - 0.5
            xs.append(middles[place] + (0 if place.to else share * WIDTH * 0.7))
        yield xs[0], xs[1]


# --- The picture ---


def picture() -> Picture:
    rows, links = rows_and_links(arrows(built_on()))
    ordered(rows, links)
    middles = columns(rows)
    width, height = max(middles.values()) + WIDTH / 2, len(rows) * (HEIGHT + GAP) - GAP
    rooms = [place for row in reversed(rows) for place in row if not place.to]
    description = "From top to bottom, each room above those that it imports: " + "; ".join(
        f"{place.room}: {words(place.room)}" for place in rooms
    )

    def top(place: Place) -> float:
        return height - HEIGHT - place.row * (HEIGHT + GAP)

    def parts() -> Iterator[Diagram]:
        strokes = [[(x, top(place)), (x, top(place) + HEIGHT)] for place, x in middles.items() if place.to]
        for (upper, lower), (start, end) in zip(links, ends(links, middles)):
            y = top(lower)
            strokes.append([(start, top(upper) + HEIGHT), (end, y)])
            if not lower.to:
                strokes.append([(end - 4, y - 6), (end, y), (end + 4, y - 6)])
        yield lines(strokes, style(None, STROKE, 1.2))
        for place in rooms:
            x, y = middles[place], top(place)
            colour = COLOURS[place.room.partition("/")[0]]
            yield box(x - WIDTH / 2, y, x + WIDTH / 2, y + HEIGHT, style(colour, EDGE))
            yield label(x, y + HEIGHT * 0.36, f"{place.room}/", 13, INK, bold=True)
            yield label(x, y + HEIGHT * 0.74, words(place.room), 10, SOFT)

    return Picture(panel(width, height, parts()), "The rooms and their imports", description)
