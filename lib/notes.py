"""What a referee remarks on a legal run: habits that would not work in a real one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from .algebra import set_text
from .memory import Profile
from .retrace import Retrace
from .trace import Op


class Note(NamedTuple):
    """A remark for the player; one that `costs_a_star` keeps a solution at two."""

    text: str
    costs_a_star: bool = False


def notes_on(done: Sequence[Sequence[Op]], profiles: Sequence[Profile], retrace: Retrace) -> tuple[Note, ...]:
    """All remarks on a run, those of several ranks told once."""
    told: dict[tuple[str, bool], list[int]] = {}
    for rank, (ops, prof) in enumerate(zip(done, profiles)):
        values = retrace.parts[rank].values
        if prof.hidden:
            line = next(op.line for op in ops if prof.hidden[0] in op.made)
            more = f" and {len(prof.hidden) - 1} more" if len(prof.hidden) > 1 else ""
            kept = f"the {values[prof.hidden[0]]}{more} (line {line})"
            text = f"kept outside the dictionaries, charged until last used: {kept}"
            told.setdefault((text, False), []).append(rank)
        for layer in _loaded_twice(ops):
            text = f"loaded the same weights of layer {layer} twice; keep them, or get them from other ranks"
            told.setdefault((text, True), []).append(rank)
        for number in _thrown_away(ops, prof):
            text = f"threw away the {values[number]}, which the next step of training would need"
            told.setdefault((text, True), []).append(rank)
    notes = [Note(f"{_ranks(ranks)} {text}", costs) for (text, costs), ranks in told.items()]
    if retrace.made_up:
        more = f", and {len(retrace.made_up) - 1} more like it" if len(retrace.made_up) > 1 else ""
        notes.append(Note(f"this uses {retrace.made_up[0]}{more}: fine for exploring, refused in a puzzle", True))
    return tuple(notes)


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {set_text(ranks)[1:-1]}"


def _loaded_twice(ops: Sequence[Op]) -> list[int]:
    """Layers of which some element was loaded more than once. Shard i of n is the span from i/n to (i+1)/n."""
    loads: dict[int, list[tuple[int, int]]] = {}
    for op in ops:
        if op.name == "load_weights" and op.layer is not None:
            loads.setdefault(op.layer, []).append(op.args)  # (shard, total)
    return [layer for layer, parts in loads.items() if _overlap(parts)]


def _overlap(parts: list[tuple[int, int]]) -> bool:
    parts = sorted(parts, key=lambda part: part[0] / part[1])
    return any((i + 1) * other_n > j * n or (i, n) == (j, other_n) for (i, n), (j, other_n) in pairwise(parts))


def _thrown_away(ops: Sequence[Op], prof: Profile) -> list[int]:
    """Updated optimizer states that are neither stored at the end nor were passed on."""
    states: dict[int, None] = {}
    for op in ops:
        if op.name == "update":
            states[op.made[1]] = None
        elif op.name != "store":
            for number in op.used:
                states.pop(number, None)
    return [number for number in states if number not in prof.left]
