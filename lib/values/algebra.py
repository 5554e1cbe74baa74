"""The algebra of shards and batches: pure functions on frozen sets, with no idea of ranks or time.

Shard `i` of `n` is the slice from `i * size // n` to `(i + 1) * size // n` of a tensor with `size` elements.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from fractions import Fraction
from itertools import groupby, islice
from operator import index
from typing import TypeVar

from lib.errors import RuleError

from .words import SAYS

WHOLE = frozenset((0,))
"""The only shard of one."""

Who = Callable[[int], str]
"""Names the i-th operand in a message: 'the first value', or 'rank 3' in a collective."""


def operand(i: int) -> str:
    return ("the first value", "the second value")[i] if i < 2 else f"value {i}"


def uneven_size(size: int, shards: Collection[int], total: int) -> int:
    """Elements that `shards` of `total` hold of a tensor of `size` elements which `total` does not divide."""
    return sum((i + 1) * size // total - i * size // total for i in shards)


N = TypeVar("N", float, Fraction)


def union(intervals: Iterable[tuple[N, N]]) -> list[tuple[N, N]]:
    """Intervals, ascending, without overlaps."""
    merged: list[tuple[N, N]] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


def covers(held: Collection[int], total: int, wanted: Iterable[int], parts: int) -> bool:
    """True if shards `held` of `total` contain every element of shards `wanted` of `parts`."""
    if len(held) == total:
        return True
    if total == parts:
        return frozenset(held).issuperset(wanted)
    return all(i in held for j in wanted for i in range(j * total // parts, -(-(j + 1) * total // parts)))


def coarsest(shards: frozenset[int], total: int) -> tuple[frozenset[int], int]:
    """The same elements as shards of the smallest count that can say so: {2, 3} of 4 is {1} of 2."""
    if len(shards) == total:
        return WHOLE, 1
    for block in range(len(shards), 1, -1):
        if total % block == 0 and len(shards) % block == 0:
            blocks = {shard // block for shard in shards}
            if len(blocks) * block == len(shards):
                return frozenset(blocks), total // block
    return shards, total


def disjoint_union(sets: Sequence[frozenset[int]], thing: str, who: Who, then: str) -> frozenset[int]:
    """The union of sets that must not overlap; `then` is the fix that the message ends with."""
    union = frozenset().union(*sets)
    if len(union) == sum(map(len, sets)):
        return union
    first: dict[int, int] = {}
    for i, members in enumerate(sets):
        for element in sorted(members):
            if element in first:
                both = f"both {who(first[element])} and {who(i)}" if first[element] != i else who(i)
                raise RuleError(SAYS("in both", thing=thing, number=element, both=both, then=then))
            first[element] = i
    raise AssertionError("sets that overlap have an element in common")


def numbers(given: object, limit: int, thing: str, owner: str = "") -> frozenset[int]:
    """`given` as a frozen set of numbers from 0 to limit - 1. A message begins with `owner`, if there is one."""
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        raise RuleError(SAYS("no list", owner=_of(owner), things=plural(thing), got=given_text(given)))
    listed = [number(i, limit, thing, owner) for i in given]
    if len(set(listed)) < len(listed):
        twice = next(i for i in listed if listed.count(i) > 1)
        raise RuleError(SAYS("listed twice", owner=_of(owner), thing=thing, number=twice))
    return frozenset(listed)


def number(given: object, limit: int, thing: str, owner: str = "") -> int:
    """`given` as a plain int from 0 to limit - 1; anything else is a RuleError that says which exist."""
    whole = given if type(given) is int else whole_number(given, thing, owner)
    if not 0 <= whole < limit:
        exist = f"only {thing} 0 exists" if limit == 1 else f"there are {plural(thing)} 0 to {limit - 1}"
        raise RuleError(SAYS("does not exist", owner=_of(owner), thing=thing, number=whole, limit=limit, exist=exist))
    return whole


def whole_number(given: object, thing: str, owner: str = "", least: int | None = None) -> int:
    """`given` as a plain int, at least `least`; a float, a text or a value is a RuleError."""
    try:
        whole = index(given)  # type: ignore[arg-type]  # anything may be given; index says no itself
    except TypeError:
        raise RuleError(SAYS("no whole number", owner=_of(owner), thing=thing, got=given_text(given))) from None
    if least is not None and whole < least:
        raise RuleError(SAYS("too small", owner=_of(owner), thing=thing, least=least, got=whole))
    return whole


def version(given: object, step: int, owner: str) -> int | None:
    """`given` as the version of the weights that made a value of `step`; None if that is the step itself."""
    if given is None:
        return None
    older = whole_number(given, "version", owner, least=0)
    if older >= step:
        raise RuleError(SAYS("version not older", owner=owner, older=older, step=step))
    return older


def part_of(given: object, thing: str, owner: str) -> tuple[int, int] | None:
    """`given` as (i, n), the i-th of n parts; None is everything."""
    if given is None:
        return None
    if not isinstance(given, Sequence) or len(given) != 2:
        raise RuleError(SAYS("no part", owner=_of(owner), thing=thing, got=given_text(given)))
    n = whole_number(given[1], thing, owner, least=2)
    return number(given[0], n, thing, owner), n


def given_text(given: object) -> str:
    """An object as a message shows it: a value of the game in words, anything else as Python shows it."""
    return f"the {given}" if hasattr(given, "is_complete") else repr(given)


def _of(owner: str) -> str:
    return f"{owner}: " if owner else ""


def plural(thing: str) -> str:
    return f"{thing}es" if thing.endswith(("ch", "ss")) else f"{thing}s"


def counted(number: int, thing: str) -> str:
    """'1 rank', '4 microbatches', '2,048 devices'."""
    return f"{number:,} {thing if number == 1 else plural(thing)}"


def missing_text(thing: str, held: Collection[int], total: int, shown: int = 8) -> str:
    """'batch 2', 'batches 0, 2-4': the things numbered below `total` that are not held; of very many, the first."""
    missing = list(islice((i for i in range(total) if i not in held), shown + 1))
    return named(thing, missing[:shown]) + (", ..." if len(missing) > shown else "")


def consecutive(numbers: Iterable[int]) -> list[list[int]]:
    """Numbers in ascending order, cut where one is missing: {0, 1, 4} is [0, 1] and [4]."""
    runs = groupby(enumerate(sorted(numbers)), lambda pair: pair[1] - pair[0])
    return [[number for _, number in pairs] for _, pairs in runs]


def set_text(numbers: Collection[int]) -> str:
    """{0, 1, 2, 3, 7} as '{0-3, 7}': long sets stay readable."""
    parts = []
    for run in consecutive(numbers):
        parts += [f"{run[0]}-{run[-1]}"] if len(run) > 2 else [str(i) for i in run]
    return "{" + ", ".join(parts) + "}"


def named(thing: str, numbers: Sequence[int]) -> str:
    """'rank 2', 'ranks 0-2, 5': some numbered things as a sentence names them."""
    return f"{thing} {numbers[0]}" if len(numbers) == 1 else f"{plural(thing)} {set_text(numbers)[1:-1]}"
