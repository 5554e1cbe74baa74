"""Profiler files: their bytes as JSON, unpacked within a limit, and when a rank computed which cells, by step."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from lib.errors import RuleError
from lib.schedules.cells import Slot

from .words import SAYS

MOST_TEXT = 60
"""Characters of a name from a file that a message repeats."""


class Span(NamedTuple):
    """When a rank computed the cells of a slot, in ms. The program `posted` it, perhaps ahead of a GPU; `busy` is the
    time in which kernels ran. A negative stage -1 - c is the rank's chunk c; negative microbatches are counted in
    order."""

    cells: Slot
    posted: float
    start: float
    end: float
    busy: float

    @property
    def length(self) -> float:
        return self.end - self.start

    @property
    def kind(self) -> tuple[tuple[int, str], ...]:
        """The stage and the operation of each cell."""
        return tuple((cell.stage, cell.op) for cell in self.cells)

    def moved(self, by: float) -> Span:
        return self._replace(posted=self.posted + by, start=self.start + by, end=self.end + by)


class JoinedCall(NamedTuple):
    """A collective on a rank, in ms: which, the name of its group if the file has it, when the rank joined and when it
    ended."""

    name: str
    group: str
    start: float
    end: float


@dataclass(frozen=True)
class RankStep:
    """One step of a rank, in ms of its own clock."""

    start: float
    end: float
    spans: tuple[Span, ...] = ()
    calls: tuple[JoinedCall, ...] = ()
    computing: tuple[tuple[float, float], ...] = ()
    """When operations other than communication ran, ascending and disjoint; only where no cells are named."""
    phases: Mapping[str, float] = field(default_factory=dict)
    """By phase (forward, backward, optimizer) the ms of `computing` in it."""

    @property
    def length(self) -> float:
        return self.end - self.start


@dataclass(frozen=True)
class RankProfile:
    """One file of a rank. `base` is the zero of its times, in ns since 1970."""

    file: str
    rank: int
    world: int | None
    steps: Mapping[int, RankStep]
    kind: str
    host: str = ""
    base: int = 0
    groups: Sequence[tuple[int, ...]] = ()
    """Process groups of pipelines, if the file names them."""
    notes: tuple[str, ...] = ()


def clipped(text: str) -> str:
    """A name from a file in one short line."""
    line = " ".join(text.split())
    return line if len(line) <= MOST_TEXT else f"{line[: MOST_TEXT - 3]}..."


def without(
    intervals: Sequence[tuple[float, float]], holes: Sequence[tuple[float, float]]
) -> list[tuple[float, float]]:
    """Disjoint ascending intervals minus other ones."""
    rest: list[tuple[float, float]] = []
    at = 0
    for start, end in intervals:
        while at < len(holes) and holes[at][1] <= start:
            at += 1
        place = at
        while place < len(holes) and holes[place][0] < end:
            if holes[place][0] > start:
                rest.append((start, holes[place][0]))
            start = max(start, holes[place][1])
            place += 1
        if start < end:
            rest.append((start, end))
    return rest


LIMIT = 500_000_000
"""Bytes of an unpacked file. A million events are 228 MB."""

MOST_VALUES = 40_000_000
"""Numbers, texts, lists and objects in a file: each takes Python about 50 bytes. A million events have 15 million."""

GIVE = "give the folder with what torch.profiler wrote, a .json or .json.gz file for each rank"
"""The advice when files cannot be read."""

PIECE = 1 << 20
GZIP = b"\x1f\x8b"


@dataclass(frozen=True)
class Source:
    """A file by its name, and a way to open it: a path here, or bytes in the browser."""

    name: str
    open: Callable[[], BinaryIO]

    @classmethod
    def of(cls, path: Path) -> Source:
        return cls(path.name, lambda: path.open("rb"))


def sources_of(paths: list[Path]) -> list[Source]:
    """The files, and the JSON files of the folders, in the order of their names.

    Raises:
        RuleError: a folder has none.
    """
    sources: list[Source] = []
    for path in paths:
        if not path.is_dir():
            sources.append(Source.of(path))
            continue
        inside = [file for file in path.iterdir() if file.is_file() and file.name.endswith((".json", ".json.gz"))]
        if not inside:
            raise RuleError(SAYS("no JSON file", folder=path.name))
        sources += map(Source.of, sorted(inside, key=_by_number))
    return sources


def _by_number(path: Path) -> list[tuple[bool, int, str]]:
    """rank10 comes after rank9."""
    return [
        (not word.isdigit(), int(word[:9]) if word.isdigit() else 0, word) for word in re.split(r"(\d+)", path.name)
    ]


def json_of(source: Source, limit: int = LIMIT) -> Any:
    """The content of a file."""
    try:
        with source.open() as stream:
            text = _unpacked(stream, source.name, limit).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise RuleError(f"{source.name} is neither text nor JSON packed with gzip; {GIVE}") from None
    except OSError as why:
        raise RuleError(f"{source.name} cannot be read: {(why.strerror or str(why)).lower()}") from None
    try:
        return json.loads(text)
    except json.JSONDecodeError as why:
        if why.pos >= len(why.doc.rstrip()) or why.msg.startswith("Unterminated"):
            raise RuleError(SAYS("ends within trace", file=source.name, at=len(why.doc))) from None
        raise RuleError(f"{source.name} is not JSON: {why.msg.lower()} at character {why.pos}; {GIVE}") from None
    except (RecursionError, ValueError, MemoryError) as why:
        raise RuleError(f"{source.name} cannot be read as JSON: {clipped(str(why)) or type(why).__name__}") from None


def _unpacked(stream: BinaryIO, name: str, limit: int) -> bytearray:
    """The bytes of a file, packed or not, within the limits on what reading them may take."""
    head = stream.read(PIECE)
    unpacker = zlib.decompressobj(31) if head.startswith(GZIP) else None
    unpacked, values = bytearray(), 0
    while head:
        try:
            part = unpacker.decompress(head, PIECE) if unpacker else head
        except zlib.error:
            raise RuleError(f"{name} is damaged: gzip cannot unpack it") from None
        unpacked += part
        values += part.count(b",") + part.count(b"[") + part.count(b"{")
        if len(unpacked) > limit or values > MOST_VALUES:
            too_many = f"{limit / 1e9:g} GB unpacked" if len(unpacked) > limit else f"{MOST_VALUES:,} values"
            raise RuleError(SAYS("too much", file=name, too_many=too_many))
        head = unpacker.unconsumed_tail if unpacker and unpacker.unconsumed_tail else stream.read(PIECE)
        if unpacker and unpacker.eof:
            break
    if unpacker and not unpacker.eof:
        raise RuleError(SAYS("cut off", file=name))
    return unpacked


def whole_number(value: Any) -> int | None:
    """A plausible whole number from 0 on; None for anything else."""
    return value if type(value) is int and 0 <= value < 10**9 else None


def is_time(value: Any) -> bool:
    """True for a plausible finite time."""
    return type(value) in (int, float) and -1e18 < value < 1e18


def mapping(value: Any) -> Mapping[str, Any]:
    """A JSON object; empty for anything else."""
    return value if isinstance(value, dict) else {}
