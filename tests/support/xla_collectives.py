"""The collectives of a program that XLA has compiled, and the bytes that they move, from its text (HLO).

Counted as the game counts: what all devices send together, by the ring formulas; a device sends nothing to itself.
"""

from __future__ import annotations

import re
from math import prod
from typing import NamedTuple

SIZES = {"pred": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "s16": 2, "s32": 4, "u32": 4, "f32": 4, "s64": 8, "f64": 8}
"""Bytes of an element, by the type's name."""

INSTRUCTION = re.compile(
    r"= (?P<shape>\(.*?\)|\S+) (?P<name>all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute"
    r"|collective-broadcast|ragged-all-to-all)(?P<start>-start)?\("
)
SHAPE = re.compile(r"(\w+)\[([\d,]*)\]")


class Collective(NamedTuple):
    """A collective by its name, with the bytes that each device sends."""

    name: str
    sent: tuple[int, ...]


def collectives(text: str, devices: int) -> list[Collective]:
    """The collectives of a compiled program on so many devices.

    Raises:
        ValueError: there is one that this module cannot count.
    """
    found = []
    for line in text.splitlines():
        match = INSTRUCTION.search(line)
        if match is None:
            continue
        name = match["name"]
        if match["start"] or name in ("collective-broadcast", "ragged-all-to-all"):
            raise ValueError(f"a collective that cannot be counted: {line.strip()[:200]}")
        size = sum(
            prod(map(int, filter(None, dims.split(",")))) * SIZES[kind] for kind, dims in SHAPE.findall(match["shape"])
        )
        found.append(Collective(name, _sent(name, size, line, devices)))
    return found


def _sent(name: str, size: int, line: str, devices: int) -> tuple[int, ...]:
    """Bytes that each device sends, given the bytes of what each has afterwards."""
    if name == "collective-permute":
        pairs = re.findall(r"\{(\d+),(\d+)\}", line.partition("source_target_pairs=")[2])
        return tuple(size * sum(a != b for a, b in pairs if int(a) == device) for device in range(devices))
    members = group_size(line, devices)
    passed = (members - 1) * size
    if name == "all-reduce":
        passed = 2 * passed // members
    elif name != "reduce-scatter":  # an all-gather or an all-to-all: each keeps one of its pieces
        passed //= members
    return (passed,) * devices


def group_size(line: str, devices: int) -> int:
    """The number of devices in each group of a collective; all groups have the same, and every device is in one.

    Written as {{0,1},{2,3}}, as [groups,members]<=..., or as axes of a mesh: mesh['a'=2,'b'=4] {'b'}.
    """
    text = line.partition("replica_groups=")[2]
    if text.startswith("{{"):
        rows = [row.split(",") for row in re.findall(r"\{([\d,]+)\}", text[: text.index("}}") + 2])]
        if len({len(row) for row in rows}) != 1 or sum(map(len, rows)) != devices:
            raise ValueError(f"groups of different sizes: {text[:100]}")
        return len(rows[0])
    if text.startswith("{}"):
        return devices
    if match := re.match(r"\[(\d+),(\d+)\]<=", text):
        return int(match[2])
    if text.startswith("mesh["):
        axes = dict(re.findall(r"'(\w+)'=(\d+)", text[: text.index("]")]))
        named = re.search(r"\{('[^}]*)\}", text)
        if named is not None:
            return prod(int(part or axes[axis]) for axis, part in re.findall(r"'(\w+)'(?::\(\d+\)(\d+))?", named[1]))
    raise ValueError(f"replica groups in an unknown form: {text[:100]}")
