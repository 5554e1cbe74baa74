"""The runtime of Training Puzzles: write the schedule, one coroutine per rank.

from lib import Dist, Model

Each name is loaded with its module when it is first asked for: a run needs no referee, and a list of puzzles no run.
"""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lib.errors import DeadlockError, IncompleteError, MismatchError, PuzzleError, RuleError, TraceError
    from lib.ledger.collectives import COLLECTIVES
    from lib.ledger.costs import COMPUTING, HIDDEN, LENGTH, TICKS_PER_STEP, Costs, Kind, steps
    from lib.ledger.goal import Goal, Record
    from lib.ledger.lanes import LANES, clocks, computing
    from lib.ledger.live_run import Dist
    from lib.ledger.meetings import in_group
    from lib.ledger.memory import PeakContents, Sample, Share, inflight, memory_by_kind, peak_lines
    from lib.ledger.model import Model, trace_of
    from lib.ledger.named_costs import COSTS
    from lib.ledger.recomputation import event_steps, old_versions
    from lib.ledger.referee import Report, referee
    from lib.ledger.runner import Outcome, run, run_async
    from lib.ledger.setting import CLASSIC_SETTING, Setting, Size
    from lib.ledger.trace import TIMED, Event, Op, Trace, group_of, halves, root_of
    from lib.ledger.trace_json import trace_from_json, trace_to_json
    from lib.ledger.values import (
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
    "lib.errors": "DeadlockError IncompleteError MismatchError PuzzleError RuleError TraceError",
    "lib.ledger.collectives": "COLLECTIVES",
    "lib.ledger.costs": "COMPUTING Costs HIDDEN Kind LENGTH TICKS_PER_STEP steps",
    "lib.ledger.goal": "Goal Record",
    "lib.ledger.lanes": "LANES clocks computing",
    "lib.ledger.live_run": "Dist",
    "lib.ledger.meetings": "in_group",
    "lib.ledger.memory": "PeakContents Sample Share inflight memory_by_kind peak_lines",
    "lib.ledger.model": "Model trace_of",
    "lib.ledger.named_costs": "COSTS",
    "lib.ledger.recomputation": "event_steps old_versions",
    "lib.ledger.referee": "Report referee",
    "lib.ledger.runner": "Outcome run run_async",
    "lib.ledger.setting": "CLASSIC_SETTING Setting Size",
    "lib.ledger.trace": "Event Op TIMED Trace group_of halves root_of",
    "lib.ledger.trace_json": "trace_from_json trace_to_json",
    "lib.ledger.values": "Activation ActivationGrad Delta KeyValue KeyValueGrad OptState OuterState Scalar Value "
    "Weight WeightGrad",
}
"""The exported names of each module."""


def late(package: str, modules: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package that loads a name with its module when it is first asked for. `modules`
    has the names of each module, separated by spaces."""
    module_of = {name: module for module, names in modules.items() for name in names.split()}

    def load(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        loaded = getattr(import_module(module_of[name], package), name)
        setattr(sys.modules[package], name, loaded)
        return loaded

    return load, lambda: sorted({*vars(sys.modules[package]), *module_of})


__all__ = sorted(" ".join(_MODULES.values()).split())

if not TYPE_CHECKING:  # a type checker should still refuse unknown names
    __getattr__, __dir__ = late(__name__, _MODULES)
