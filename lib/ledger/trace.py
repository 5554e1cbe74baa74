"""The record of a run: what every rank did, in its own order, with the values it used and made.

A trace is complete: values, clock and memory can be computed from it again, and it can be replayed on tensors.
It is the same for every order in which the ranks were started, because each rank has its own list of operations.

This module decides which columns a record of an operation holds. What an operation requires and makes is decided by
its rule, and whether a record is true by `recomputation`.
"""

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from lib.ledger.collectives import COLLECTIVES, is_last, root_in
from lib.ledger.costs import CLASSIC, COMPUTING, ON_TIER, PAIR, Costs
from lib.ledger.setting import CLASSIC_SETTING, Setting, Size

# --- The garbage collector, while many long-lived records are allocated ---


@contextmanager
def no_collection() -> Iterator[None]:
    """Collects nothing inside. A run makes no garbage before it ends; looking for it takes half of the time."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


NO_BATCHES: frozenset[int] = frozenset()

TIMED = COMPUTING | COLLECTIVES | {"loss", "update", "outer_update", "pass_to", "receive"} | ON_TIER.keys()
"""The operations that are events: they have a place on the clock, and memory is sampled when they start."""


UPDATES = frozenset(("update", "tier_update", "outer_update"))
"""The operations that make a weight and its optimizer state of a later step."""

FREE = frozenset(
    ("load_weights", "get_activation", "fake_grad", "given", "add", "combine", "shard", "set_final_weight")
    + ("set_output", "store", "delete", "delta", "merge", "set_final_copy", "norm")
)
"""The operations that take no time and need no price. A timed one without a price does not exist in a game."""


class Form(NamedTuple):
    """The columns that a record of an operation holds: whether it names a layer, how many values it uses (None: any
    number), and what its other arguments are."""

    layer: bool
    inputs: int | None
    args: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    """More arguments, of which a record holds the first few: those that it needs, and None before them."""
    bucket: bool = False
    """Where communication overlaps computation, it may use more values."""
    more: int = 0
    """It may use so many more values."""

    def describe(self) -> str:
        or_more = f" or {(self.inputs or 0) + self.more}" if self.more else ""
        inputs = "any number of values" if self.inputs is None else f"{self.inputs}{or_more} used values"
        more = [f"perhaps {name}" for name in self.optional]
        return ", ".join([*(["a layer"] if self.layer else []), inputs, *self.args, *more])

    def takes(self, inputs: int, bucket: bool) -> bool:
        """True if a record may hold so many used values."""
        fixed = self.inputs is None or self.inputs <= inputs <= self.inputs + self.more
        return fixed or (self.bucket and bucket and inputs > 0)

    def fits(self, args: Sequence[object]) -> bool:
        """True if a record may hold so many arguments."""
        return 0 <= len(args) - len(self.args) <= len(self.optional)


FORMS: Mapping[str, Form] = {
    "load_weights": Form(True, 0, ("shard", "total"), ("tier", "outer")),
    "get_activation": Form(False, 0, (), ("step", "shares")),
    "fake_grad": Form(True, 0, (), ("step",)),
    "given": Form(False, 0, ("value",)),
    "forward": Form(True, 2),
    "loss": Form(False, 1),
    "backward": Form(True, 3),
    "pair": Form(True, 5, ("back", "batch")),
    "backward_input": Form(True, 3),
    "backward_weight": Form(True, None),
    "keys": Form(True, 2),
    "attend": Form(True, None),
    "attend_backward": Form(True, None),
    "keys_backward": Form(True, 4),
    "norm": Form(True, 1),
    "update": Form(True, 3, more=1),
    "tier_update": Form(True, 3, ("tier",), more=1),
    "delta": Form(True, 2),
    "outer_update": Form(True, 3),
    "merge": Form(True, 2),
    "add": Form(False, 2),
    "combine": Form(False, 2),
    "shard": Form(False, 1, ("shard", "total")),
    "allreduce": Form(True, 1, (), ("group", "label"), bucket=True),
    "allgather": Form(True, 1, (), ("group", "label"), bucket=True),
    "scatterreduce": Form(True, 1, (), ("group", "label"), bucket=True),
    "broadcast": Form(True, 0, (), ("group", "label", "root"), more=1),
    "reduce": Form(True, 1, (), ("group", "label", "root")),
    "dispatch": Form(True, 1, (), ("group", "label")),
    "collect": Form(True, 1, (), ("group", "label")),
    "heads": Form(True, 1, (), ("group", "label")),
    "tokens": Form(True, 1, (), ("group", "label")),
    "pass_to": Form(False, None, ("to",), ("tag",)),
    "receive": Form(False, 0, ("source",), ("tag",)),
    "await": Form(False, None, ("call",)),
    "offload": Form(False, 1, ("tier",)),
    "fetch": Form(False, 1),
    "move": Form(False, 1, ("tier",)),
    "set_final_weight": Form(True, 1),
    "set_final_copy": Form(True, 1),
    "set_output": Form(False, 1),
    "store": Form(False, 1, ("where", "key")),
    "delete": Form(False, 0, ("where", "key")),
}
"""Every operation that a trace can hold. `given` is a value that no operation of the run made; `await` joins the call
that is row `call` of its rank, where communication overlaps computation."""


class Op(NamedTuple):
    """One thing that one rank did: `start` and `end` in ticks, and the other columns as in FORMS.

    `inputs` and `outputs` number the rank's values: the n-th value made on a rank is its number n.
    """

    name: str
    start: int
    end: int
    layer: int | None = None
    batches: frozenset[int] = NO_BATCHES
    inputs: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()
    args: tuple[Any, ...] = ()
    line: int = 0
    """Line in the player's file, 0 when unknown; storing and deleting have none."""

    def call(self) -> str:
        """The operation as a message calls it: 'forward(layer=1)'."""
        match self.name, self.args:
            case (("store" | "delete"), (where, key)):
                return f"{'del ' if self.name == 'delete' else ''}{where}[{key!r}]"
            case (("pass_to" | "receive"), (rank, *tag)):
                return message_text(self.name, rank, *tag)
            case "await", (call,):
                return f"await operation {call}"
        return call_text(self.name, self.layer)


def halves(op: Op) -> tuple[Op, ...]:
    """The forward and the backward of a pair; of any other operation the operation itself."""
    if op.name != PAIR:
        return (op,)
    back, batch = op.args
    ahead = op._replace(name="forward", inputs=op.inputs[:2], outputs=op.outputs[:1], args=())
    behind = ahead._replace(name="backward", layer=back, batches=frozenset((batch,)))
    return ahead, behind._replace(inputs=op.inputs[2:], outputs=op.outputs[1:])


def call_text(name: str, layer: object = None) -> str:
    name = {"add": "'+'", PAIR: "forward_backward()", "tier_update": "update()"}.get(name, f"{name}()")
    return name if layer is None else f"{name[:-1]}layer={layer if hasattr(layer, '__index__') else '...'})"


def message_text(name: str, rank: object, tag: object = 0) -> str:
    """'pass_to(1)', 'receive()', 'receive(0, tag=2)'."""
    parts = [*([] if rank is None else [str(rank)]), *([f"tag={tag}"] if tag else [])]
    return f"{name}({', '.join(parts)})"


def group_of(op: Op) -> tuple[int, ...] | None:
    """The group of a collective; None is the world."""
    group: tuple[int, ...] | None = op.args[0] if op.args else None
    return group


def root_of(op: Op) -> int | None:
    """The root of a broadcast or a reduce."""
    return root_in(op.name, op.args)


def sent_values(op: Op, rank: int, members: Sequence[int]) -> tuple[int, ...]:
    """The numbers of the values that a rank sends in a message, or in a collective of some ranks."""
    root = root_of(op)
    if root is None:
        return op.inputs
    return () if is_last(op.name, rank, members, root) else op.inputs or op.outputs


def shortest(*args: Any) -> tuple[Any, ...]:
    """Optional arguments as a record holds them: None where one is left out, and none of these at the end."""
    kept = len(args)
    while kept and args[kept - 1] is None:
        kept -= 1
    return args[:kept]


def address(rank: int, tag: int) -> tuple[int, ...]:
    """The arguments of a message: its partner, and its tag if that is not 0."""
    return (rank, tag) if tag else (rank,)


def place_text(rank: int, time: str, call: str) -> str:
    """The place of a refusal: 'rank 2, t=3.5, forward(layer=1)'."""
    return f"rank {rank}, t={time}, {call}"


@dataclass(frozen=True)
class Trace:
    """A run: for each rank, its operations in order."""

    size: Size
    ranks: tuple[tuple[Op, ...], ...]
    setting: Setting = CLASSIC_SETTING

    @property
    def costs(self) -> Costs:
        return self.setting.costs

    def events(self, rank: int) -> list[Op]:
        """The timed operations of one rank."""
        return [op for op in self.ranks[rank] if op.name in TIMED]


class Event(NamedTuple):
    """A timed operation as the original puzzles show it in `Model.log`: time and length in steps,
    memory in elements stored when it starts, `typ` "pass" for both ends of a message."""

    typ: str
    layer: int | None
    rank: int
    time: float
    length: float
    memory: int
    batches: list[int]


def as_event(op: Op, rank: int, memory: int, costs: Costs = CLASSIC) -> Event:
    typ = "pass" if op.name in ("pass_to", "receive") else op.name
    return Event(typ, op.layer, rank, costs.steps(op.start), costs.steps(op.end - op.start), memory, sorted(op.batches))
