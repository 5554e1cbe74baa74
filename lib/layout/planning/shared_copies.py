"""Shared copies: a tensor that several operators take in one layout is moved once for all of them.

In the exact planner a variable for each tensor with several readers has the sets of moved copies as its values. A copy
that only one operator takes costs the same as its own move. So at most half as many copies as there are readers need to
be considered, each of them wanted by two.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations

from lib.layout.layouts.tensor_layout import Placement, TensorLayout

MAX_VALUES = 1000
"""Maximum number of sets. Beyond it, sets of fewer copies are considered."""


def shared_copies(
    readers: Sequence[Mapping[Placement, TensorLayout]], most: int | None = None
) -> tuple[list[tuple[TensorLayout, ...]], bool]:
    """Each set of copies, of at most `most`, that two or more readers may share; whether these are all sets.

    `readers` has, for each input that the tensor is, the layouts in which it may be needed.
    """
    times = Counter(key for reader in readers for key in reader)
    wanted = [
        layout for key, layout in {k: x for reader in readers for k, x in reader.items()}.items() if times[key] > 1
    ]
    found: list[tuple[TensorLayout, ...]] = []
    for number in range(len(readers) // 2 + 1):
        more = list(combinations(wanted, number))
        if len(found) + len(more) > MAX_VALUES or (most is not None and number > most and more):
            return found, False
        found += more
    return found, True
