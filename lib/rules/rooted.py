"""Collectives in which one rank is the root: of a broadcast the source, of a reduce the rank that gets the sum.

Both run along a chain of the group's ranks in a circle. A broadcast starts at its source, a reduce ends at its root, so
each rank but one sends a whole value (Thakur et al. 2005, "Optimization of collective communication operations in
MPICH", whose long messages go through a pipelined ring).
"""

from collections.abc import Sequence

from lib.errors import RuleError
from lib.values import algebra
from lib.values.base import Value, object_text
from lib.values.kinds import Parked

from .words import SAYS

ROOT_OF = {"broadcast": "source", "reduce": "to"}
"""The collectives that have a root, each with the name of the argument that is the root."""


def root_in(name: str, args: Sequence[int]) -> int | None:
    """The root in a record's arguments, which are a group, a label and a root; None for other operations."""
    return args[2] if name in ROOT_OF else None


def require_root(name: str, root: object, rank: int, members: Sequence[int], gives: bool) -> int:
    """The root of a collective that a rank of a group calls, checked, and that of a broadcast only the root gives a
    value."""
    root = algebra.whole_number(root, ROOT_OF[name])
    if root not in members:
        raise RuleError(SAYS("root outside group", root=root, group=", ".join(map(str, members))))
    if name == "broadcast" and gives and rank != root:
        raise RuleError(SAYS("value not from root", rank=rank, root=root))
    if not gives and (name != "broadcast" or rank == root):
        raise RuleError(SAYS("no value given", rank=rank, name=name, advice=_WHO_GIVES[name]))
    return root


_WHO_GIVES = {"broadcast": "the source gives the value", "reduce": "every rank gives its part"}


def require_own(value: object) -> None:
    """Refuses what no other rank can get."""
    if not isinstance(value, Value):
        raise RuleError(SAYS("broadcast of no value", value=object_text(value)))
    if isinstance(value, Parked):
        raise RuleError(SAYS("parked value sent", value=value))


def refuse_broadcast(maker: str, call: object) -> None:
    """Refuses to bring the pending result of a broadcast to another call: on most ranks nothing is known of it."""
    if maker == "broadcast":
        raise RuleError(SAYS("result still pending", call=call))


def results_of(name: str, given: int, rank: int, root: int | None) -> int:
    """How many values a rank gets from a collective to which it gives so many."""
    return 1 if name == "broadcast" else given if root in (None, rank) else 0


def is_last(name: str, rank: int, members: Sequence[int], root: int) -> bool:
    """True for the rank at the end of the chain, which sends nothing."""
    return root == (rank if name == "reduce" else next_member(rank, members))


def next_member(rank: int, members: Sequence[int], steps: int = 1) -> int:
    """The rank that follows in the circle of a group."""
    return members[(members.index(rank) + steps) % len(members)]
