"""The runtime of Training Puzzles: write the schedule, one coroutine per rank.

from lib import Dist, Model

Each name is loaded with its module when it is first asked for: a run needs no referee, and a list of puzzles no run.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lib.communication.lanes import LANES, clocks, computing
    from lib.communication.meetings import in_group
    from lib.errors import DeadlockError, IncompleteError, MismatchError, PuzzleError, RuleError, TraceError
    from lib.game.costs import COMPUTING, HIDDEN, LENGTH, TICKS_PER_STEP, Costs, Kind, steps
    from lib.game.goal import Goal, Record
    from lib.game.named_costs import COSTS
    from lib.game.setting import CLASSIC_SETTING, Setting, Size
    from lib.judging.memory import PeakContents, Sample, Share, inflight, memory_by_kind, peak_lines
    from lib.judging.recomputation import event_steps, old_versions
    from lib.judging.referee import Report, referee
    from lib.rules.collectives import COLLECTIVES
    from lib.runtime.live_run import Dist
    from lib.runtime.model import Model, trace_of
    from lib.runtime.runner import Outcome, run, run_async
    from lib.trace.notation import trace_from_json, trace_to_json
    from lib.trace.ops import TIMED, Event, Op, Trace, group_of, halves, root_of
    from lib.values.kinds import (
        Activation,
        ActivationGrad,
        Delta,
        KeyValue,
        KeyValueGrad,
        OptState,
        OuterState,
        Scalar,
        Value,
        Weight,
        WeightGrad,
    )

_MODULES = {
    "lib.communication.lanes": ("LANES", "clocks", "computing"),
    "lib.communication.meetings": ("in_group",),
    "lib.errors": ("DeadlockError", "IncompleteError", "MismatchError", "PuzzleError", "RuleError", "TraceError"),
    "lib.game.costs": ("COMPUTING", "Costs", "HIDDEN", "Kind", "LENGTH", "TICKS_PER_STEP", "steps"),
    "lib.game.goal": ("Goal", "Record"),
    "lib.game.named_costs": ("COSTS",),
    "lib.game.setting": ("CLASSIC_SETTING", "Setting", "Size"),
    "lib.judging.memory": ("PeakContents", "Sample", "Share", "inflight", "memory_by_kind", "peak_lines"),
    "lib.judging.recomputation": ("event_steps", "old_versions"),
    "lib.judging.referee": ("Report", "referee"),
    "lib.rules.collectives": ("COLLECTIVES",),
    "lib.runtime.live_run": ("Dist",),
    "lib.runtime.model": ("Model", "trace_of"),
    "lib.runtime.runner": ("Outcome", "run", "run_async"),
    "lib.trace.notation": ("trace_from_json", "trace_to_json"),
    "lib.trace.ops": ("Event", "Op", "TIMED", "Trace", "group_of", "halves", "root_of"),
    "lib.values.kinds": ("Activation", "ActivationGrad", "Delta", "KeyValue", "KeyValueGrad", "OptState", "OuterState")
    + ("Scalar", "Value", "Weight", "WeightGrad"),
}
"""The exported names of each module."""

_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

__all__ = sorted(_MODULE_OF)

if not TYPE_CHECKING:  # a type checker should still refuse unknown names

    def __getattr__(name: str) -> Any:
        if name not in _MODULE_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        exported = globals()[name] = getattr(import_module(_MODULE_OF[name]), name)
        return exported


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
