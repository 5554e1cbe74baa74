"""What is to be scheduled: a pipeline's size, its times, where its stages are, and how much a rank may hold."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from math import gcd
from numbers import Real
from typing import Any

from lib.errors import RuleError
from lib.game.costs import FINEST

PLACEMENTS = ("contiguous", "looped", "V")
"""A stage on each rank; stages dealt out in turn, `chunks` to a rank; two on each rank, dealt out there and back."""

MEASURES = ("span", "makespan")
"""The longest time from a rank's first start to its last end, which counts where a step follows another without a
barrier; and the time from the first start of all to the last end, for a single step."""

MOST_CELLS = 200_000
"""Forwards of all stages and microbatches together."""

MOST_TIME = 10_000


@dataclass(frozen=True)
class Problem:
    """A training step of a pipeline.

    `forward`, `backward_input` and `backward_weight` are the times of one microbatch in one stage, `send` that of a
    message to another rank, which travels beside computation: all in one unit, with up to three decimals. With `whole`
    the two halves of a backward follow each other as one operation.

    No rank may hold more than `memory`: a microbatch in a stage counts `m_b` from its forward to the input half of its
    backward, then `m_w` until its weight half ends (Qi et al. 2024, section 2.3). A rank has `chunks` stages, 2 in a V.
    What is to be short is `least`: the longest "span" of a rank, or the "makespan".

    Raises:
        RuleError: naming what cannot be, and what would fit.
    """

    ranks: int
    microbatches: int
    forward: float = 1.0
    backward_input: float = 1.0
    backward_weight: float = 1.0
    send: float = 0.0
    memory: float | None = None
    placement: str = "contiguous"
    chunks: int | None = None
    m_b: float = 1.0
    m_w: float = 1.0
    whole: bool = False
    least: str = "span"
    unit: int = field(init=False, compare=False)
    """Ticks in a unit of time."""

    def __post_init__(self) -> None:
        if self.least not in MEASURES:
            raise RuleError(f"what is to be least is one of {', '.join(MEASURES)}; got {self.least!r:.40}")
        if self.placement not in PLACEMENTS:
            raise RuleError(f"the placement is one of {', '.join(PLACEMENTS)}; got {self.placement!r:.40}")
        if self.chunks is None:
            object.__setattr__(self, "chunks", 1 if self.placement == "contiguous" else 2)
        for name in ("ranks", "microbatches", "chunks"):
            if type(getattr(self, name)) is not int or getattr(self, name) < 1:
                raise RuleError(f"{name} must be a whole number from 1 on; got {getattr(self, name)!r:.40}")
        fixed = {"contiguous": 1, "V": 2}.get(self.placement, self.chunks)
        if self.chunks != fixed:
            advice = "; take the placement looped for more" if self.placement == "contiguous" else ""
            raise RuleError(f"the placement {self.placement} has {fixed} chunks a rank, got {self.chunks}{advice}")
        if self.stages * self.microbatches > MOST_CELLS:
            raise RuleError(
                f"{self.stages} stages of {self.microbatches:,} microbatches are {self.stages * self.microbatches:,} "
                f"forwards, and at most {MOST_CELLS:,} are possible; take up to {MOST_CELLS // self.stages:,} "
                "microbatches"
            )
        for name, least in (("forward", 1), ("backward_input", 1), ("backward_weight", 0), ("send", 0)):
            object.__setattr__(self, name, _time(name, getattr(self, name), least))
        for name in ("m_b", "m_w") + (("memory",) if self.memory is not None else ()):
            if not is_number(getattr(self, name)) or getattr(self, name) < 0:
                raise RuleError(f"{name} must be a number from 0 on; got {getattr(self, name)!r:.40}")
        if self.memory is not None and self.memory < self.least_memory:
            raise RuleError(
                f"nothing fits into a memory of {self.memory:g}: while a rank trains one microbatch it holds "
                f"{self.least_memory:g}; take memory={self.least_memory:g} or more"
            )
        unit = next(unit for unit in (1, 10, 100, FINEST) if all(time * unit % 1 == 0 for time in self._times))
        object.__setattr__(self, "unit", unit)

    @property
    def _times(self) -> tuple[Fraction, ...]:
        return tuple(map(_exact, (self.forward, self.backward_input, self.backward_weight, self.send)))

    @property
    def ticks(self) -> tuple[int, int, int, int]:
        """F, I, W and a message in ticks; of a whole backward, I is all and W is 0."""
        f, i, w, c = (int(time * self.unit) for time in self._times)
        return (f, i + w, 0, c) if self.whole else (f, i, w, c)

    @property
    def work(self) -> int:
        """Ticks of all computing of a rank."""
        return self.microbatches * self.v * sum(self.ticks[:3])

    @property
    def v(self) -> int:
        assert self.chunks is not None
        return self.chunks

    @property
    def stages(self) -> int:
        return self.ranks * self.v

    def rank_of(self, stage: int) -> int:
        """The rank that a stage is on."""
        lap, place = divmod(stage, self.ranks)
        return self.ranks - 1 - place if self.placement == "V" and lap else place

    def stages_of(self, rank: int) -> list[int]:
        """The stages of a rank, ascending."""
        return [stage for stage in range(self.stages) if self.rank_of(stage) == rank]

    @property
    def least_memory(self) -> float:
        """What a rank holds at least: a microbatch is in all its stages when it turns back, and one of them computes
        its weight half last."""
        held_w = 0.0 if self.whole else self.m_w
        return max(self.v * self.m_b, (self.v - 1) * self.m_b + held_w)

    @property
    def weights(self) -> tuple[int, int, int]:
        """`m_b`, `m_w` and the memory as whole numbers in one unit; without a cap all microbatches fit."""
        m_b, m_w = _exact(self.m_b), Fraction(0) if self.whole else _exact(self.m_w)
        cap = self.v * self.microbatches * max(m_b, m_w) if self.memory is None else _exact(self.memory)
        scale = m_b.denominator * m_w.denominator * cap.denominator
        whole = [int(share * scale) for share in (m_b, m_w, cap)]
        by = gcd(*whole) or 1
        return whole[0] // by, whole[1] // by, whole[2] // by

    def time(self, ticks: int) -> float:
        """Ticks in the unit of the times that were given."""
        return ticks / self.unit


def is_number(value: Any) -> bool:
    """True for a number of a size that people mean."""
    number: Any = value if isinstance(value, Real) and not isinstance(value, bool) else float("nan")
    return bool(-1e9 < number < 1e9)


def _exact(value: float) -> Fraction:
    """The decimal that a float is written as."""
    return Fraction(repr(value)) if isinstance(value, float) else Fraction(value)


def _time(name: str, value: Any, least: int) -> float:
    shown = name.replace("_", "-")
    if not is_number(value) or not least / FINEST <= value <= MOST_TIME:
        raise RuleError(f"{shown} must be a time from {least / FINEST:g} to {MOST_TIME:,}; got {value!r:.40}")
    if _exact(value) * FINEST % 1:
        raise RuleError(f"{shown} has at most three decimals, as {round(float(value), 3):g}; got {value!r:.40}")
    return float(value)
