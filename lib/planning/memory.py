"""What a planned step takes: time, bytes sent, and what each rank holds at its peak, in fused or eager code.

The ticks and the waits are those of `timing`. What a rank holds and sends follows from its actions alone, whatever
their times are; so it is counted here action by action, by kind, and no run is needed. The tests compare it with runs
of all ranks.
"""

from collections import Counter
from collections.abc import Mapping
from fractions import Fraction
from typing import NamedTuple

from lib.game.costs import elements_sent

from .actions import Program, actions, program_of
from .cost_model import prices
from .job import Job
from .memory_model import widths, with_holes
from .split import Split
from .timing import Walked, walked
from .values import KIND_OF, KINDS, effects_of, sizes_of


class PeakShare(NamedTuple):
    """Similar values that live at a peak: what they are, their number, and their bytes in all."""

    what: str
    number: int
    bytes: int


class RankMemory(NamedTuple):
    """A rank of the pipeline at its peak. `low` has the bytes of fused code by kind; `high` is the most that eager code
    reserves. `operation` starts at the peak; `held` lists what lives then, in fused code. `layers` is the number of
    layers of its stages."""

    rank: int
    layers: int
    low: Mapping[str, int]
    high: int
    operation: str
    held: tuple[PeakShare, ...]

    @property
    def peak(self) -> int:
        return sum(self.low.values())


FIXED = {"ends": "embedding, head and logits", "workspace": "activations of a layer that is computed again"}


def fullest(program: Program, place: int, sizes: Mapping[str, int]) -> tuple[Counter[str], str]:
    """The values of a rank at its fullest moment, and the operation that starts then."""
    effects, counts = effects_of(program), Counter[str]()
    most, peak, operation, number = -1, counts, "", 0
    for name, _, _ in actions(program, place):
        effect = effects[name]
        for what, by in effect.before.items():
            counts[what] += by
            number += by * sizes[what]
        if effect.operation and number > most:
            most, peak, operation = number, counts.copy(), effect.operation
        for what, by in effect.after.items():
            counts[what] += by
            number += by * sizes[what]
    return peak, operation


def rank_memory(job: Job, split: Split, place: int, fused: Walked, eager: Walked) -> RankMemory:
    priced, program = prices(job, split), program_of(job, split)
    sizes, stages = sizes_of(priced, program), program.table.stages_of(place)
    values, operation = fullest(program, place, sizes)
    ends = (priced.first if 0 in stages else 0) + (priced.last if program.table.stages - 1 in stages else 0)
    low = {**dict.fromkeys(KINDS[:4], 0), "ends": ends, "workspace": priced.workspace}
    shares = [PeakShare(what, number, number * sizes[what]) for what, number in values.items() if number]
    for share in shares:
        low[KIND_OF[share.what]] += share.bytes
    shares += [PeakShare(what, 1, low[kind]) for kind, what in FIXED.items() if low[kind]]
    shares.sort(key=lambda share: (-share.bytes, share.what))
    high = max(with_holes(job, split, eager.peak), fused.peak)
    layers = len(program.layers_of(place)) * priced.layers
    return RankMemory(place, layers, low, high, operation, tuple(shares))


# --- Time and bytes sent ---

SENT = ("messages", "gradients", "weights", "host")
"""Kinds of bytes that a rank sends in the pipeline and to its replicas."""


class StepFigures(NamedTuple):
    """The `ticks` of the step, compiled, and its `eager_ticks`; the ticks that each rank computes; the memory of each
    rank; by kind (see SENT) the bytes of the rank that sends the most; and the mean ticks in which a rank waits for
    replicas (`dp`) and for the host."""

    ticks: int
    eager_ticks: int
    busy: tuple[int, ...]
    memory: tuple[RankMemory, ...]
    sent: Mapping[str, int]
    waits: Mapping[str, float]

    @property
    def bubble(self) -> float:
        """The share of all ranks' time in which they do not compute."""
        return 1 - sum(self.busy) / (len(self.busy) * self.ticks)


def figures(job: Job, split: Split) -> StepFigures:
    """What a step of a split takes."""
    fused, eager = walked(job, split), walked(job, split, eager=True)
    memory = tuple(rank_memory(job, split, place, *ranks) for place, ranks in enumerate(zip(fused, eager)))
    totals = [sent_by(job, split, place) for place in range(len(fused))]
    most = max(totals, key=lambda sent: sum(sent.values()))
    waits = {axis: sum(rank.waits[axis] for rank in fused) / len(fused) for axis in ("dp", "host")}
    ticks, eager_ticks = (max(rank.ticks for rank in ranks) for ranks in (fused, eager))
    return StepFigures(ticks, eager_ticks, tuple(rank.busy for rank in fused), memory, most, waits)


def sent_by(job: Job, split: Split, place: int) -> dict[str, int]:
    """Bytes that a rank sends in the step, by kind."""
    priced, program, wide = prices(job, split), program_of(job, split), widths(job, split)
    n, elements = priced.replicas, priced.parameters
    shard = elements // n if program.zero else elements
    of_call: dict[str, tuple[str, Fraction | int]] = {
        "send": ("messages", priced.border),
        "gather": ("weights", elements_sent("allgather", shard, n) * wide.gathered),
        "reduce": (
            "gradients",
            elements_sent("scatterreduce" if program.zero else "allreduce", elements, n) * job.gradient,
        ),
        **dict.fromkeys(("fetch", "park"), ("host", shard * wide.state * priced.shard)),
    }
    sent: dict[str, Fraction | int] = dict.fromkeys(SENT, 0)
    for _, operation, _ in actions(program, place):
        if operation in of_call:
            kind, number = of_call[operation]
            sent[kind] += number
    return {kind: round(number) for kind, number in sent.items()}
