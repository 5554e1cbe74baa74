"""Describes a schedule within its family, from its trace: GPipe, 1F1B or interleaved; gathered once or twice.

Sources: ZeRO (Rajbhandari et al. 2020), GPipe (Huang et al. 2019), 1F1B and interleaving (Narayanan et al. 2021).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from lib import Trace
from lib.judging import family as families
from lib.trace import Op


def kind_of(trace: Trace, family: str) -> str:
    """A noun phrase for a correct schedule of a family: the name that says most, or else the family."""
    name = _name(_Work(trace), family) or family
    again = ", with activations recomputed" if _recomputes(trace) else ""
    return f"{name}{again}"


class _Work:
    """Which layers and batches each rank works on, and in which order."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.steps = [[op for op in ops if op.name in ("forward", "backward")] for ops in trace.ranks]
        self.layers = [frozenset(op.layer for op in ops if op.layer is not None) for ops in self.steps]
        self.calls = Counter(op.name for ops in trace.ranks for op in ops)
        self.shards = max((op.args[1] for ops in trace.ranks for op in ops if op.name == "load_weights"), default=1)

    @property
    def stages(self) -> list[frozenset[int]]:
        """The different sets of layers, by their first layer."""
        return sorted(set(self.layers), key=lambda layers: min(layers, default=-1))

    def most_in_flight(self, rank: int) -> int:
        """The most batches that have begun forward and not finished backward on a rank."""
        order = [(op.name, batch) for op in self.steps[rank] for batch in sorted(op.batches)]
        last = {batch: place for place, (_, batch) in enumerate(order)}
        begun: set[int] = set()
        most = 0
        for place, (_, batch) in enumerate(order):
            begun.add(batch)
            most = max(most, len(begun))
            begun -= {batch for batch in begun if last[batch] == place}
        return most

    def all_ranks(self, condition: Callable[[Sequence[Op]], bool]) -> bool:
        return all(map(condition, self.steps))


def _name(work: _Work, family: str) -> str:
    """Empty if the family has no name that says more."""
    if not all(work.layers):
        return ""
    match family:
        case families.ONE_RANK:
            return _one_rank(work)
        case families.DATA_PARALLEL:
            return "plain data parallelism (DDP)" if work.calls["allreduce"] else ""
        case families.SHARDED:
            return _sharded(work)
        case families.PIPELINE | families.SHARDED_PIPELINE:
            return _pipeline(work)
    return ""


def _one_rank(work: _Work) -> str:
    if work.all_ranks(_goes_forward_first):
        return "standard training: every batch forward, then every batch backward"
    return "gradient accumulation, one batch at a time" if work.most_in_flight(0) == 1 else ""


def _sharded(work: _Work) -> str:
    times, rest = divmod(work.calls["allgather"], work.trace.size.ranks * work.trace.size.layers)
    words = {1: ", with every weight gathered once", 2: ", with every weight gathered twice"}
    often = "" if rest else words.get(times, "")
    is_fully = work.calls["scatterreduce"] > 0
    return f"{'fully sharded data parallelism (ZeRO-3)' if is_fully else 'weight-sharded data parallelism'}{often}"


def _pipeline(work: _Work) -> str:
    stages = work.stages
    if sum(map(len, stages)) != len(frozenset[int]().union(*stages)):
        return ""
    order = _order(work)
    group = work.trace.size.ranks // len(stages)
    if not order or group == 1:
        return order
    shards = f" and every weight in {work.shards} shards" if work.shards > 1 else ""
    return f"{order}, {group} ranks to a stage{shards}"


def _order(work: _Work) -> str:
    ranks = range(work.trace.size.ranks)
    stages = work.stages
    interleaved = any(max(layers) - min(layers) + 1 > len(layers) for layers in stages)
    shape = "an interleaved pipeline" if interleaved else "a pipeline"
    if max(len(op.batches) for ops in work.steps for op in ops) > 1:
        return f"{shape} without microbatches: one stage works at a time" if not interleaved else ""
    flights = [work.most_in_flight(rank) for rank in ranks]
    if max(flights) == 1:
        return f"{shape} with one microbatch in flight on each rank"
    if work.all_ranks(_goes_forward_first):
        return f"{shape} in GPipe's order: all forwards, then all backwards"
    rooms = [len(stages) - stages.index(layers) for layers in work.layers]
    if not interleaved and all(most <= room for most, room in zip(flights, rooms)):
        return f"{shape} in 1F1B order, with at most {max(flights)} microbatches in flight"
    return shape


def _goes_forward_first(steps: Sequence[Op]) -> bool:
    """True if every batch's first forwards come before any backward; what is recomputed later does not count."""
    names = [op.name for op in _first_times(steps)]
    return names == sorted(names, reverse=True)


def _first_times(steps: Sequence[Op]) -> Iterator[Op]:
    seen: set[tuple[str, int | None, int]] = set()
    for op in steps:
        new = {(op.name, op.layer, batch) for batch in op.batches} - seen
        seen |= new
        if new:
            yield op


def _recomputes(trace: Trace) -> bool:
    forwards = (
        Counter((op.layer, batch) for op in ops if op.name == "forward" for batch in op.batches) for ops in trace.ranks
    )
    return any(times > 1 for counts in forwards for times in counts.values())
