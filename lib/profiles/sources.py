"""The bytes of profiler files as JSON: unpacked within a limit, and refused in one line."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from lib.errors import RuleError

from .spans import clipped

LIMIT = 2_000_000_000
"""Bytes of an unpacked file. A million events are 228 MB, and take Python a gigabyte."""

GIVE = "give the folder with what torch.profiler wrote, a .json or .json.gz file for each rank"
"""What to do instead."""

PIECE = 1 << 20
GZIP = b"\x1f\x8b"


@dataclass(frozen=True)
class Source:
    """A file by its name, and how to open it: a path here, or bytes in the browser."""

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
    found: list[Source] = []
    for path in paths:
        if not path.is_dir():
            found.append(Source.of(path))
            continue
        inside = [one for one in path.iterdir() if one.is_file() and one.name.endswith((".json", ".json.gz"))]
        if not inside:
            raise RuleError(f"{path.name} has no .json or .json.gz file; torch.profiler writes one for each rank")
        found += map(Source.of, sorted(inside, key=_by_number))
    return found


def _by_number(path: Path) -> list[tuple[bool, int, str]]:
    """rank10 comes after rank9."""
    return [
        (not word.isdigit(), int(word[:9]) if word.isdigit() else 0, word) for word in re.split(r"(\d+)", path.name)
    ]


def json_of(source: Source, limit: int = LIMIT) -> Any:
    """What a file holds."""
    try:
        with source.open() as stream:
            data = _unpacked(stream, source.name, limit)
    except OSError as why:
        raise RuleError(f"{source.name} cannot be read: {(why.strerror or str(why)).lower()}") from None
    try:
        return json.loads(data.decode("utf-8-sig"))
    except json.JSONDecodeError as why:
        if why.pos >= len(why.doc.rstrip()) or why.msg.startswith("Unterminated"):
            raise RuleError(
                f"{source.name} ends at character {len(why.doc)}, within the trace; the profiler was stopped while it "
                "wrote"
            ) from None
        raise RuleError(f"{source.name} is no JSON: {why.msg.lower()} at character {why.pos}; {GIVE}") from None
    except UnicodeDecodeError:
        raise RuleError(f"{source.name} is no text, and no JSON packed with gzip; {GIVE}") from None
    except (RecursionError, ValueError, MemoryError) as why:
        raise RuleError(f"{source.name} cannot be read as JSON: {clipped(str(why)) or type(why).__name__}") from None


def _unpacked(stream: BinaryIO, name: str, limit: int) -> bytes:
    head = stream.read(PIECE)
    unpacker = zlib.decompressobj(31) if head.startswith(GZIP) else None
    parts, size = [], 0
    while head:
        try:
            part = unpacker.decompress(head, PIECE) if unpacker else head
        except zlib.error:
            raise RuleError(f"{name} is damaged: gzip cannot unpack it") from None
        parts.append(part)
        size += len(part)
        if size > limit:
            raise RuleError(
                f"{name} has more than {limit / 1e9:g} GB unpacked; profile fewer steps, or without stacks and shapes"
            )
        head = unpacker.unconsumed_tail if unpacker and unpacker.unconsumed_tail else stream.read(PIECE)
        if unpacker and unpacker.eof:
            break
    if unpacker and not unpacker.eof:
        raise RuleError(f"{name} is cut off; the profiler was stopped while it wrote")
    return b"".join(parts)


def whole_number(value: Any) -> int | None:
    """A whole number of a size that people mean, from 0 on; None for anything else."""
    return value if type(value) is int and 0 <= value < 10**9 else None


def is_time(value: Any) -> bool:
    """True for a finite number of a size that times have."""
    return type(value) in (int, float) and -1e18 < value < 1e18


def mapping(value: Any) -> Mapping[str, Any]:
    """A JSON object; an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def listed(value: Any) -> list[Any]:
    """A JSON list; an empty one for anything else."""
    return value if isinstance(value, list) else []
