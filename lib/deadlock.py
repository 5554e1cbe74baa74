"""How a standstill is told: who waits for what, on which line, and what to do next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from lib.values.algebra import named


class Standstill(NamedTuple):
    """One rank that waits. `kind` is collective, post or receive; `of` the ranks it waits for (none: anyone)."""

    rank: int
    call: str
    line: int
    kind: str
    of: tuple[int, ...]


NEXT_MOVE = {
    "collective": "a collective completes only when every rank calls it, in the same order",
    "post": "a mailbox holds one unread message, so let the other side receive before sending to it again",
    "receive": "each receive needs a pass_to to that rank",
}


def explain(waits: Sequence[Standstill], absent: Mapping[int, str]) -> str:
    """'nobody can move: rank 0 waits in receive() on line 12 for rank 1; rank 1 has returned; each ...'"""
    groups: dict[tuple[str, int, str, tuple[int, ...]], list[int]] = {}
    for wait in waits:
        groups.setdefault((wait.call, wait.line, wait.kind, wait.of), []).append(wait.rank)
    told = [
        f"{named('rank', ranks)} wait{'s' if len(ranks) == 1 else ''} in {call} on line {line} {_for(kind, of)}"
        for (call, line, kind, of), ranks in groups.items()
    ]
    by_state: dict[str, list[int]] = {}
    for rank, state in sorted(absent.items()):
        by_state.setdefault(state, []).append(rank)
    told += [f"{named('rank', ranks)} {_agree(state, len(ranks))}" for state, ranks in by_state.items()]
    advice = [NEXT_MOVE[kind] for kind in dict.fromkeys(wait.kind for wait in waits)]
    return "nobody can move: " + "; ".join(told + advice)


def _for(kind: str, of: tuple[int, ...]) -> str:
    if kind == "post":
        return f"until {named('rank', of)} reads the message before it"
    return f"for {named('rank', of)}" if of else "for a message from anyone"


def _agree(state: str, count: int) -> str:
    return state if count == 1 else state.replace("has ", "have ").replace("was ", "were ")
