"""Formats deadlock messages: who waits for whom, where, and the fix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from lib.values.algebra import named


class WaitingRank(NamedTuple):
    """One rank that waits in `call`. `kind` is collective, post, receive or lane; `of` the ranks it waits for (none:
    any). `why` says it in words, where it is more than that."""

    rank: int
    call: str
    line: int
    kind: str
    of: tuple[int, ...]
    why: str = ""


FIXES = {
    "collective": "a collective completes only when every rank calls it, in the same order",
    "post": "a mailbox holds one unread message; let the other rank receive before you send to it again",
    "receive": "each receive needs a pass_to to that rank",
    "lane": "a lane runs its calls in the order in which they were made, so make the calls of different groups in one "
    "order on all ranks",
}
"""By kind of waiting: the fix that a message ends with."""


def deadlock_text(waits: Sequence[WaitingRank], absent: Mapping[int, str]) -> str:
    """'nobody can move: rank 0 waits in receive() on line 12 for rank 1; rank 1 has returned; each ...'

    `absent` describes the ranks that do not wait here: "has returned". Ranks alike are named together.
    """
    groups: dict[tuple[str, int, str, tuple[int, ...], str], list[int]] = {}
    for wait in waits:
        groups.setdefault(wait[1:], []).append(wait.rank)
    clauses = [
        f"{named('rank', ranks)} wait{'s' if len(ranks) == 1 else ''} in {call} on line {line} {why or _for(kind, of)}"
        for (call, line, kind, of, why), ranks in groups.items()
    ]
    by_state: dict[str, list[int]] = {}
    for rank, state in sorted(absent.items()):
        by_state.setdefault(state, []).append(rank)
    clauses += [f"{named('rank', ranks)} {_in_number(state, len(ranks))}" for state, ranks in by_state.items()]
    fixes = [FIXES[kind] for kind in dict.fromkeys(wait.kind for wait in waits)]
    return "nobody can move: " + "; ".join(clauses + fixes)


def _for(kind: str, of: tuple[int, ...]) -> str:
    if kind == "post":
        return f"until {named('rank', of)} receives the message before it"
    return f"for {named('rank', of)}" if of else "for a message from any rank"


def _in_number(state: str, count: int) -> str:
    """The state of one rank or of several: 'has returned', 'have returned'."""
    return state if count == 1 else state.replace("has ", "have ").replace("was ", "were ")
