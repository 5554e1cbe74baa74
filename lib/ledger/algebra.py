"""The algebra of shards and batches: pure functions on frozen sets, with no idea of ranks or time.

Shard `i` of `n` is the slice from `i * size // n` to `(i + 1) * size // n` of a tensor with `size` elements. So any
count of shards fits any size, and shards of different counts can be compared.

This module decides what some shards or batches cover, and how numbers and labels are said in a message. Which values
may be combined is decided by `values`, and by the rules.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from fractions import Fraction
from itertools import groupby, islice
from operator import index
from typing import Any, NamedTuple, TypeVar

from lib.errors import RuleError, Sentences

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


# --- Labels in words: which shards, batches, parts and tokens a value holds ---

Labelled = Any
"""A value, by the fields that its words name; the kinds of values are made with these functions."""


def shards_text(value: Labelled) -> str:
    """'unsharded', 'shard 2 of 4', 'shards 0-2 of 4'."""
    if len(value.shards) == value.total:
        return "unsharded" if value.total == 1 else f"unsharded (all {value.total} shards)"
    return f"{named('shard', sorted(value.shards))} of {value.total}"


def shard_to_update(grad: Labelled, weight: Labelled, state: Labelled) -> str:
    """What to do where a gradient does not cover a weight: update the shard that it and the state are of, if they are
    of one."""
    if weight.total == 1 and len(grad.shards) == 1 and (grad.shards, grad.total) == (state.shards, state.total):
        (shard,) = grad.shards
        return f"update shard {shard} of the weight: `weights[layer].shard({shard}, {grad.total})`"
    return "update a weight with a gradient that covers all of its shards"


def share_text(value: Labelled) -> str:
    """', part 0 of 4 of a sum, share 1 of 4 of the tokens': what there is of an activation, if not all."""
    parts = f", {parts_text(value)}" if len(value.parts) < value.of else ""
    return parts + (f", {tokens_text(value)}" if len(value.shards) < value.total else "")


def parts_text(value: Labelled) -> str:
    """'part 0 of 4 of a sum'."""
    return f"{named('part', sorted(value.parts))} of {value.of} of a sum"


def tokens_text(value: Labelled) -> str:
    """'share 1 of 4 of the tokens', 'the vocabulary {1} of 4'."""
    if value.vocabulary:
        return f"the vocabulary {set_text(value.shards)} of {value.total}"
    return f"{named('share', sorted(value.shards))} of {value.total} of the tokens"


def expert_text(value: Labelled) -> str:
    """'expert 1 of 4': a shard of a layer of experts, or a share of the tokens on its way to them."""
    return f"{named('expert', sorted(value.shards))} of {value.total}"


def step_text(value: Labelled) -> str:
    """', step 2', ', step 2 with version 1 of the weights'; nothing for step 0, the first."""
    version = getattr(value, "version", None)
    version_text = "" if version is None else f" with version {version} of the weights"
    return f", step {value.step}{version_text}" if value.step else ""


def more_text(value: Labelled) -> str:
    """', of the replica trained since step 0 with batch 1'; nothing if there never were replicas."""
    return f", {value.copy}" if value.copy is not None else ""


def batches_text(value: Labelled) -> str:
    """'batch 1 of 4', 'batches 0-3 of 4', 'no batches (zero)'."""
    if not value.batches:
        return "no batches (zero)"
    shares = getattr(value, "shares", 1)
    if shares > 1:
        return shares_of_batches(value.batches, shares)
    return f"{named('batch', sorted(value.batches))} of {value.total_batches}"


def norm_text(value: Labelled) -> str:
    """'the layers {0, 1} of 4', 'shards {0} of 2 of layer 1': whose squares a norm adds up."""
    n = value.total // value.layers
    shards_of = {layer: {i for i in range(n) if layer * n + i in value.shards} for layer in range(value.layers)}
    full = [layer for layer, shards in shards_of.items() if len(shards) == n]
    parts = [f"the layers {set_text(full)} of {value.layers}"] if full else []
    parts += [
        f"shards {set_text(shards)} of {n} of layer {layer}"
        for layer, shards in shards_of.items()
        if shards and layer not in full
    ]
    return ", ".join(parts)


def shares_of_batches(numbers: Collection[int], shares: int) -> str:
    """'tokens {6, 7} of 8 of batch 0', 'tokens {0} of 8 of batch 1': shares of tokens that are numbered through."""
    tokens_of: dict[int, set[int]] = {}
    for number in sorted(numbers):
        tokens_of.setdefault(number // shares, set()).add(number % shares)
    of_all = [batch for batch, tokens in tokens_of.items() if len(tokens) == shares]
    parts = [named("batch", of_all)] if of_all else []
    parts += [
        f"tokens {set_text(tokens)} of {shares} of batch {b}" for b, tokens in tokens_of.items() if b not in of_all
    ]
    return ", ".join(parts)


RESULT_ORDER = {
    frozenset(("WeightGrad", "ActivationGrad")): "backward returns the weight gradient first",
    frozenset(("Weight", "OptState")): "load_weights and update return the weight first",
}
"""By two kinds that one call returns: their order."""


def order_hint(given: type, kind: type) -> str:
    """The end of a message on a value of a wrong kind: the order of results that were probably swapped."""
    order = RESULT_ORDER.get(frozenset((given.__name__, kind.__name__)))
    return f" ({order})" if order else ""


DIFFERENCES = {
    "total": "shard count",
    "layers": "the model's layers",
    "total_batches": "the step's batches",
    "copy": "the replica it belongs to",
    "vocabulary": "whether a cut head made them",
}
"""By field of a label: what differs, in words, where the name does not say it."""

ALIKE_FIRST = {
    ("gather", "parts"): "; add the parts first: scatterreduce leaves a share of their sum on each rank",
    ("sum", "shards"): "; sum equal shards: a shard that only one rank has needs no sum",
}
"""What to do first, by what is done with values and how they differ."""


# --- What a replica has trained alone, between two averages (local SGD, Stich 2019, section 2) ---
#
# Replicas diverge at a step where they are equal: each continues with its own batches, the same in every step.
# Averaging the weights makes them equal again. Values with equal marks hold the numbers of one replica.

Average = tuple[int, int, tuple[tuple[int, ...], ...]]
"""An average of replicas: the step at which they diverged, the step of the average, and the batches of each."""


class Copy(NamedTuple):
    """The mark of a replica: the step since which it trains alone, which batches of how many it uses in each step
    (none: all replicas are equal since that step), and the earlier averages."""

    since: int
    batches: frozenset[int]
    of: int
    averages: tuple[Average, ...] = ()

    def __str__(self) -> str:
        if not self.batches:
            return f"averaged at step {self.since}"
        return f"of the replica trained since step {self.since} with {named('batch', sorted(self.batches))}"


def shared(copy: Copy | None) -> bool:
    """True if all replicas have the same."""
    return copy is None or not copy.batches


def averages_of(copy: Copy | None) -> tuple[Average, ...]:
    return () if copy is None else copy.averages


def averaged(copies: Sequence[Copy], step: int) -> Copy:
    """The mark of the average, at a step, of replicas that were equal when they diverged."""
    partition = tuple(sorted(tuple(sorted(copy.batches)) for copy in copies))
    return Copy(step, frozenset(), copies[0].of, (*copies[0].averages, (copies[0].since, step, partition)))


def checked_copy(given: object) -> Copy | None:
    """`given` as a mark; None is a model that was never trained in replicas."""
    if given is None:
        return None
    if not isinstance(given, (tuple, list)) or len(given) != len(Copy._fields):
        raise RuleError(SAYS("no copy", fields=", ".join(Copy._fields), got=given))
    since, batches, of, averages = given
    of = whole_number(of, "of", "copy", least=1)
    if not isinstance(averages, (tuple, list)):
        raise RuleError(SAYS("no averages", got=averages))
    return Copy(
        whole_number(since, "since", "copy", least=0),
        numbers(batches, of, "batch", "copy"),
        of,
        tuple(_average(average, of) for average in averages),
    )


def _average(given: object, of: int) -> Average:
    if not isinstance(given, (tuple, list)) or len(given) != 3 or not isinstance(given[2], (tuple, list)):
        raise RuleError(SAYS("no average", got=given))
    since, step = (whole_number(number, "step", "average", least=0) for number in given[:2])
    return since, step, tuple(tuple(sorted(numbers(batches, of, "batch", "copy"))) for batches in given[2])


SAYS = Sentences(
    {
        "in both": "{both} include {thing} {number}; {then}",
        "no list": "{owner}{things} must be a list of numbers, such as [0]; got {got}",
        "listed twice": "{owner}{thing} {number} is listed twice; list it once",
        "does not exist": "{owner}{thing} {number} does not exist; {exist}",
        "no whole number": "{owner}{thing} must be a whole number; got {got}",
        "too small": "{owner}{thing} must be at least {least}; got {got}",
        "version not older": "{owner}: version {older} is not older than step {step}; leave it out where it is the step",
        "no part": "{owner}{thing} must be (i, n), the i-th of n parts; got {got}",
        "no copy": "copy must be {fields}, such as (0, [1], 4, []); got {got!r:.60}",
        "no averages": "averages must be a list; got {got!r:.60}",
        "no average": "an average is two steps and the batches of each replica; got {got!r:.60}",
    }
)
