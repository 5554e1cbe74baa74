"""Shared copies: a tensor that several operators take in one layout is moved once for all of them.

Its variable in the exact planner then has a value for each layout in which it may be stored together with each set of
moved copies. A copy that only one operator takes costs the same as its own move. So at most half as many copies as
there are readers need to be considered, each of them wanted by two.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations

from lib.layout.layouts.tensor_layout import Placement, TensorLayout
from lib.layout.redistribution.exchange import least_elements

Copies = frozenset[Placement]
MAX_VALUES = 1000
"""Maximum number of values of a variable. Beyond it, sets of fewer copies are considered."""


def shared_copies(
    layouts: Sequence[TensorLayout], readers: Sequence[Mapping[Placement, TensorLayout]]
) -> tuple[list[tuple[TensorLayout, tuple[TensorLayout, ...]]], bool]:
    """Each of `layouts` with each set of copies that two or more readers may share; whether these are all sets.

    `readers` has, for each input that the tensor is, the layouts in which it may be needed.
    """
    times = Counter(key for reader in readers for key in reader)
    wanted = {key: layout for reader in readers for key, layout in reader.items() if times[key] > 1}
    most = len(readers) // 2
    for number in range(most, -1, -1):
        found: list[tuple[TensorLayout, tuple[TensorLayout, ...]]] = []
        for layout in layouts:
            moving = [copy for copy in wanted.values() if number and least_elements(layout, copy)]
            for n in range(number + 1):
                found += [(layout, some) for some in combinations(moving, n)]
                if len(found) > MAX_VALUES:
                    break
        if len(found) <= MAX_VALUES or not number:
            break
    return found, number == most or not wanted
