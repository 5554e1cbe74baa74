"""The ideas that a run shows, from its trace alone: an oracle for those that a record names."""

from collections.abc import Iterator

from lib import Op, Trace
from lib.pipelines import recomputed

SHOWN = ("checkpoint", "input_again", "update_early")
"""The ideas that a trace shows by itself."""


def ideas_shown(trace: Trace) -> Iterator[str]:
    if any(recomputed(ops) for ops in trace.ranks):
        yield "checkpoint"
    if any(_takes_again(ops) for ops in trace.ranks):
        yield "input_again"
    if trace.setting.steps == 1 and any(_updates_early(ops) for ops in trace.ranks):
        yield "update_early"


def _takes_again(ops: tuple[Op, ...]) -> bool:
    """True if a rank gets the input of a microbatch twice."""
    taken = [batch for op in ops if op.name == "get_activation" for batch in op.batches]
    return len(taken) > len(set(taken))


def _updates_early(ops: tuple[Op, ...]) -> bool:
    """True if a rank updates one layer before the backward of another."""
    names = [op.name for op in ops]
    last = max((at for at, name in enumerate(names) if name.startswith(("backward", "forward_backward"))), default=0)
    return "update" in names[:last]
