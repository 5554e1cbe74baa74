"""The runtime of Training Puzzles: write the schedule, one coroutine per rank.

from lib import Dist, Model
"""

from .costs import HIDDEN, LENGTH, Costs
from .dist import Dist
from .errors import Deadlock, Incomplete, Mismatch, PuzzleError, RuleError, TraceError
from .goal import Goal, Record
from .ledger import Sample, Share, memory_by_kind
from .model import Model, trace_of
from .notation import trace_from_json, trace_from_text, trace_to_json, trace_to_text
from .referee import Report, referee
from .rules import Size
from .runner import Outcome, run, run_async
from .trace import TIMED, Event, Op, Trace
from .value import Value
from .values import Activation, ActivationGrad, OptState, Weight, WeightGrad

__all__ = [
    "HIDDEN",
    "LENGTH",
    "TIMED",
    "Activation",
    "ActivationGrad",
    "Costs",
    "Deadlock",
    "Dist",
    "Event",
    "Goal",
    "Incomplete",
    "Mismatch",
    "Model",
    "Op",
    "OptState",
    "Outcome",
    "PuzzleError",
    "Record",
    "Report",
    "RuleError",
    "Sample",
    "Share",
    "Size",
    "Trace",
    "TraceError",
    "Value",
    "Weight",
    "WeightGrad",
    "memory_by_kind",
    "referee",
    "run",
    "run_async",
    "trace_from_json",
    "trace_from_text",
    "trace_of",
    "trace_to_json",
    "trace_to_text",
]
