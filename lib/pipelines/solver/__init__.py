"""Finds pipeline schedules: the shortest under a cap on memory, for any times of the halves of backward.

from lib.pipelines.solver import solve

found = solve(ranks=8, microbatches=32, forward=1.0, backward_input=1.1, backward_weight=0.8, send=0.1, memory=8)

`found.table` is its order, `found.schedule` a coroutine, and `found.trace()` a run of it; `found.span` is its time, and
`found.bound` a lower bound.
"""

from .problem import PLACEMENTS, LowerBound, Problem
from .solving import Solution, solve

__all__ = ["PLACEMENTS", "LowerBound", "Problem", "Solution", "solve"]
