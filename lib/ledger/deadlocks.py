"""Deadlocks in words: who waits for whom, on which line, what stands unread, and the fix.

A deadlock is found elsewhere: in a run by `waits`, when the counter of ranks that can move reaches zero, and in a trace
by `recomputation`, when no rank's next operation can be executed. Both describe the waiting ranks as data, and get the
same sentence here, so a message does not depend on who found the deadlock. A graph of all waits was rejected: a message
for one line of code needs the ranks alike named together, a cycle if there is one, and the call nearest to the cause.
"""

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from lib.errors import Sentence, Sentences
from lib.ledger.algebra import named
from lib.ledger.meetings import IN_GROUP


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
    "receive": "each `receive` needs a matching `pass_to` to that rank",
    "lane": "a lane runs its calls in the order in which they were made, so make the calls of different groups in one "
    "order on all ranks",
}
"""By kind of waiting: the fix that a message ends with."""


def deadlock_text(
    waits: Sequence[WaitingRank],
    absent: Mapping[int, str],
    cycle: Sequence[tuple[int, int]],
    has_groups: bool = False,
    unread: Collection[tuple[int, int]] = (),
    unsent: Mapping[int, str] = MappingProxyType({}),
) -> Sentence:
    """'nobody can move: rank 0 waits in receive() on line 12 for rank 1; rank 1 has returned; each ...'

    `absent` describes the ranks that do not wait here: "has returned". Ranks alike are named together. `cycle` is what
    `cycle_of` finds. In a game with `has_groups` a collective may have forgotten its group. `unread` has the sender and
    the receiver of each message that was not received: a receiver that waits for another rank may have named the wrong
    one. `unsent` has, by rank, a result that it has neither used nor sent: another rank may wait for that.
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
    for state, ranks in by_state.items():
        state = state if len(ranks) == 1 else state.replace("has ", "have ").replace("was ", "were ")
        clauses.append(f"{named('rank', ranks)} {state}")
    if cycle:
        pairs = ", ".join(f"rank {a} waits for rank {b}" for a, b in cycle)
        clauses.append(f"they wait for each other in a cycle: {pairs}")
    clauses += [f"rank {rank} has neither used nor sent the {value}" for rank, value in unsent.items()]
    missed = [(source, to) for source, to in unread if any(_passes_over(wait, source, to) for wait in waits)]
    if missed:
        clauses.append("unread: " + ", ".join(f"a message from rank {source} to rank {to}" for source, to in missed))
    fixes = [FIXES[kind] for kind in dict.fromkeys(wait.kind for wait in waits)]
    worlds = [wait for wait in waits if wait.kind == "collective" and IN_GROUP not in wait.call] if has_groups else []
    if worlds:
        where = f"{worlds[0].call} on line {worlds[0].line}"
        fixes[fixes.index(FIXES["collective"])] += f"; or name a group: {where} has none, so it waits for every rank"
    return SAYS(
        "nobody can move",
        clauses="; ".join(clauses + fixes),
        waits={wait.rank: wait.call for wait in waits},
        lines={wait.rank: wait.line for wait in waits},
        of={wait.rank: wait.of for wait in waits},
        absent=dict(absent),
        cycle=cycle,
        unread=missed,
        unsent=dict(unsent),
    )


def nearest_to_cause(
    waits: Sequence[WaitingRank],
    absent: Collection[int],
    unread: Collection[tuple[int, int]],
    unsent: Collection[int] = (),
) -> frozenset[int]:
    """Ranks whose own call explains a deadlock: those that pass over a message which has come, else those that wait for
    a rank that has ended, else those that have a result `unsent`. Empty if there are none."""
    passing = {wait.rank for wait in waits if any(_passes_over(wait, source, to) for source, to in unread)}
    deserted = {wait.rank for wait in waits if any(rank in absent for rank in wait.of)}
    return frozenset(passing or deserted or unsent)


def _passes_over(wait: WaitingRank, source: int, to: int) -> bool:
    """True if a rank that has a message from `source` waits for other ranks' messages only."""
    return wait.rank == to and wait.kind == "receive" and bool(wait.of) and source not in wait.of


def cycle_of(waits: Sequence[WaitingRank]) -> list[tuple[int, int]]:
    """Ranks of which each waits for the next and the last for the first, as pairs; empty if there is no such cycle.
    Who waits for several ranks or for any, as in a collective, is in none."""
    waits_for = {wait.rank: wait.of[0] for wait in waits if len(wait.of) == 1}
    for start in waits_for:
        walked = [start]
        while (following := waits_for.get(walked[-1])) is not None and following not in walked:
            walked.append(following)
        if following is not None:
            ring = walked[walked.index(following) :]
            return list(zip(ring, [*ring[1:], ring[0]]))
    return []


def _for(kind: str, of: tuple[int, ...]) -> str:
    if kind == "post":
        return f"until {named('rank', of)} receives the message before it"
    return f"for {named('rank', of)}" if of else "for a message from any rank"


SAYS = Sentences({"nobody can move": "nobody can move: {clauses}"})
"""The refusal of this chapter: a reason, and a sentence over its facts."""
