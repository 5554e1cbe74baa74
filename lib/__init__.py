"""The runtime of Training Puzzles: write the schedule, one coroutine per rank.

from lib import Dist, Model
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lib.runtime.dist import Dist
from lib.runtime.model import Model, trace_of
from lib.runtime.runner import Outcome, run, run_async
from lib.values.base import Value
from lib.values.kinds import (
    Activation,
    ActivationGrad,
    Delta,
    KeyValue,
    KeyValueGrad,
    OptState,
    OuterState,
    Weight,
    WeightGrad,
)
from lib.values.scalar import Scalar

from .communication.calls import in_group
from .communication.lanes import LANES, clocks, computing
from .errors import DeadlockError, IncompleteError, MismatchError, PuzzleError, RuleError, TraceError
from .game.costs import COMPUTING, HIDDEN, LENGTH, TICKS_PER_STEP, Costs, steps
from .game.kinds import Kind
from .game.named_costs import COSTS
from .game.setting import CLASSIC_SETTING, Setting, Size
from .rules.collectives import COLLECTIVES
from .trace.ops import TIMED, Event, Op, Trace, group_of, halves, root_of

if TYPE_CHECKING:
    from lib.judging.memory import Sample, Share, inflight, memory_by_kind
    from lib.judging.peak import PeakContents
    from lib.judging.peak_text import peak_lines
    from lib.judging.referee import referee
    from lib.judging.report import Report
    from lib.judging.training_steps import event_steps, old_versions

    from .game.goal import Goal, Record
    from .trace.notation import trace_from_json, trace_to_json

__all__ = [
    "CLASSIC_SETTING",
    "COLLECTIVES",
    "COMPUTING",
    "COSTS",
    "HIDDEN",
    "LANES",
    "LENGTH",
    "TICKS_PER_STEP",
    "TIMED",
    "Activation",
    "ActivationGrad",
    "KeyValue",
    "KeyValueGrad",
    "Delta",
    "OuterState",
    "Scalar",
    "Costs",
    "DeadlockError",
    "Dist",
    "Event",
    "Goal",
    "IncompleteError",
    "Kind",
    "MismatchError",
    "Model",
    "Op",
    "OptState",
    "Outcome",
    "PeakContents",
    "PuzzleError",
    "Record",
    "Report",
    "RuleError",
    "Sample",
    "Setting",
    "Share",
    "Size",
    "Trace",
    "TraceError",
    "Value",
    "Weight",
    "WeightGrad",
    "clocks",
    "computing",
    "event_steps",
    "group_of",
    "halves",
    "in_group",
    "inflight",
    "memory_by_kind",
    "old_versions",
    "peak_lines",
    "referee",
    "root_of",
    "run",
    "run_async",
    "steps",
    "trace_from_json",
    "trace_of",
    "trace_to_json",
]

LOADED_LATER = {
    "event_steps": "lib.judging.training_steps",
    "old_versions": "lib.judging.training_steps",
    "inflight": "lib.judging.memory",
    "Sample": "lib.judging.memory",
    "Share": "lib.judging.memory",
    "memory_by_kind": "lib.judging.memory",
    "PeakContents": "lib.judging.peak",
    "peak_lines": "lib.judging.peak_text",
    "Report": "lib.judging.report",
    "referee": "lib.judging.referee",
    "Goal": "lib.game.goal",
    "Record": "lib.game.goal",
    "trace_from_json": "lib.trace.notation",
    "trace_to_json": "lib.trace.notation",
}
"""Exported names by their module, which is loaded when they are first asked for: a run needs none of them."""

if not TYPE_CHECKING:  # a type checker should still refuse unknown names

    def __getattr__(name: str) -> Any:
        if name not in LOADED_LATER:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(import_module(LOADED_LATER[name]), name)
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *LOADED_LATER})
