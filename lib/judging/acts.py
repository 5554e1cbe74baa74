"""Indexes one rank's operations by name, once for all findings on a run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from itertools import chain
from typing import NamedTuple

from lib.trace import Op

from .rank_state import RankState


class Acts(NamedTuple):
    """One rank's executed operations: the indices of those of each name."""

    state: RankState
    named: Mapping[str, list[int]]

    @classmethod
    def of(cls, state: RankState) -> Acts:
        named = defaultdict[str, list[int]](list)
        for i, op in enumerate(state.done):
            named[op.name].append(i)
        return cls(state, dict(named))

    def all(self, names: Collection[str]) -> list[Op]:
        """The operations with one of the names, in their order."""
        ops = self.state.ops
        return [ops[i] for i in sorted(chain(*[self.named.get(name, ()) for name in names]))]
