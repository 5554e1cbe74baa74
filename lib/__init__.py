"""The runtime of Training Puzzles: write the schedule, one coroutine per rank.

from lib import Dist, Model
"""

from .costs import HIDDEN, LENGTH, Costs
from .dist import Dist
from .errors import Deadlock, Incomplete, Mismatch, PuzzleError, RuleError, TraceError
from .goal import Goal, Record
from .model import Model, trace_of
from .notation import trace_from_json, trace_from_text, trace_to_json, trace_to_text
from .referee import Report, referee
from .rules import Size
from .runner import Outcome, run, run_async
from .trace import Event, Op, Trace
from .value import Value
from .values import Activation, ActivationGrad, OptState, Weight, WeightGrad

__all__ = [
    "HIDDEN",
    "LENGTH",
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
    "Size",
    "Trace",
    "TraceError",
    "Value",
    "Weight",
    "WeightGrad",
    "referee",
    "run",
    "run_async",
    "trace_from_json",
    "trace_from_text",
    "trace_of",
    "trace_to_json",
    "trace_to_text",
]
