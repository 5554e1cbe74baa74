"""One rank's call that takes time beside its computation or together with other ranks."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NoReturn

from lib.errors import PuzzleError, RuleError
from lib.rules.collectives import Group, group_text
from lib.trace.ops import Op
from lib.values.base import Value

from .words import SAYS

OpIndex = tuple[int, int]
"""An operation: its rank, and its index there."""


class PendingValue(NamedTuple):
    """What an earlier call of the same rank will have made: the n-th of its results."""

    call: Call
    n: int

    @property
    def number(self) -> int:
        return self.call.op.outputs[self.n]

    @property
    def unawaited(self) -> str:
        """What a message says of it in place of a value."""
        return f"result {self.n} of {self.call}, which is still pending; await its handle first"

    def __await__(self) -> NoReturn:
        raise RuleError(SAYS("result not awaited", result=self, this=self.unawaited))

    def __repr__(self) -> str:
        return f"result {self.n} of {self.call}"


def layer_of(part: Value | PendingValue) -> int:
    """The layer of an input. Outputs have the layers of the inputs."""
    return layer_of(part.call.inputs[part.n]) if isinstance(part, PendingValue) else part.layer


@dataclass(slots=True, eq=False)
class Call:
    """One rank's call. `at` is the index of its row, `clock` the rank's clock, `cause` the event that set it, and
    `inputs` its values, or outputs of other calls that are pending. A blocking call is on no lane: its rank awaits it
    at once."""

    rank: int
    at: int
    clock: int
    cause: OpIndex | None
    op: Op
    group: Group | None
    inputs: tuple[Value | PendingValue, ...]
    values: tuple[Value, ...] = ()
    """The values of its inputs, known when it is first on its lane."""
    outputs: tuple[Value, ...] = ()
    start: int = -1
    end: int = -1
    """Known when it is settled; -1 before."""
    last: OpIndex | None = None
    """The call of its meeting that was ready last."""
    refusal: PuzzleError | None = None
    lane: Lane | None = None
    """The lane that it is on, from when it is issued until it is settled."""

    @property
    def name(self) -> str:
        return self.op.name

    @property
    def layer(self) -> Any:
        return self.op.layer

    @property
    def args(self) -> tuple[Any, ...]:
        return self.op.args

    @property
    def line(self) -> int:
        return self.op.line

    def __str__(self) -> str:
        return f"{self.op.call()}{in_group(self.group)} on line {self.line}"

    @property
    def batches(self) -> frozenset[int]:
        return self.op.batches

    @property
    def place(self) -> OpIndex:
        return self.rank, self.at

    @property
    def settled(self) -> bool:
        return self.end >= 0

    def ready(self) -> bool:
        """Resolves the inputs; False while one of them is pending."""
        if not self.values:
            values = []
            for part in self.inputs:
                if type(part) is PendingValue:
                    if part.call.end < 0:
                        return False
                    part = part.call.outputs[part.n]
                values.append(part)
            self.values = tuple(values)  # type: ignore[arg-type]  # no PendingValue is left
        return True


@dataclass(slots=True, eq=False)
class Lane:
    """The calls of one rank that run one after the other: those that have not ended, and the one before them."""

    calls: deque[Call] = field(default_factory=deque)
    last: Call | None = None


def in_group(group: Group | None) -> str:
    """' in the group of ranks 0-3'; nothing for the world."""
    return "" if group is None else f" in the group {group_text(group)}"
