"""The player's interface to one rank: its operations, dictionaries and clock."""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine, Mapping, Sequence
from operator import index
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from lib.communication.meetings import message_ticks
from lib.errors import PuzzleError, RuleError
from lib.rules import operations
from lib.trace.ops import Event, Trace, address, as_event, message_text
from lib.values import algebra
from lib.values.base import Value, copy_of, join_shards, object_text
from lib.values.kinds import Activation, ActivationGrad, OptState, Parked, Weight, WeightGrad

from .computation import TierOperations
from .dist import Dist
from .handles import map_values
from .recorder import player_line
from .storage import FinalWeights, Storage
from .suggestions import NoSuchNameError, unknown_name
from .waits import Message, ReceiveWait, SendWait
from .words import SAYS

if TYPE_CHECKING:
    from lib.judging.report import Report

T = TypeVar("T")

Storages = tuple[Storage[Weight], Storage[OptState], Storage[Activation], Storage[ActivationGrad], Storage[WeightGrad]]

READ_ONLY = frozenset(
    ("rank", "dist", "run", "RANKS", "LAYERS", "BATCHES", "SHARES", "time", "log", "final_weights")
    + ("weights", "opt_states", "activations", "grad_activations", "grad_weights", "parked")
)
"""Attributes of a model that the runtime sets and a player may only read."""


class Model(TierOperations):
    """A model of `layers` layers as one `rank` sees it, trained for one step of `batches` microbatches.

    `Model()` is rank 0 of its own Dist. Calls that involve other ranks are awaited. Times are in steps, memory
    in elements. A call that is not allowed raises a PuzzleError and changes nothing.
    """

    def __init__(self, rank: int = 0, dist: Dist | None = None, layers: int = 2, batches: int = 1) -> None:
        self.dist = Dist(1) if dist is None else dist
        if not isinstance(self.dist, Dist):
            raise RuleError(SAYS("no Dist", got=object_text(dist)))
        self.run, self._rank = self.dist.enter(rank, layers, batches)
        self.rank = self._rank
        self._recorder = recorder = self.run.recorders[self._rank]
        self._game, self._costs = self.run.game, self.run.costs
        self.LAYERS, self.BATCHES, self.RANKS = self.run.size
        self.SHARES = self._game.shares
        self.weights = Storage(recorder, "weights", Weight)
        self.opt_states = Storage(recorder, "opt_states", OptState)
        self.activations = Storage(recorder, "activations", Activation)
        self.grad_activations = Storage(recorder, "grad_activations", ActivationGrad)
        self.grad_weights = Storage(recorder, "grad_weights", WeightGrad)
        self.parked = Storage(recorder, "parked", Parked)
        self._final: dict[int, Weight] = {}

    # --- Looking around ---

    def index(self, axis: str) -> int:
        """This rank's place on an axis of the mesh."""
        try:
            return self.run.mesh.index(self._rank, axis)
        except PuzzleError as why:
            raise why.at(self._recorder.place("index()"), player_line()) from None

    def axis(self, axis: str) -> tuple[int, ...]:
        """The ranks with the same position on all other axes of the mesh, this rank included, ascending."""
        try:
            return self.run.mesh.along(self._rank, (axis,))
        except PuzzleError as why:
            raise why.at(self._recorder.place("axis()"), player_line()) from None

    @property
    def time(self) -> float:
        """This rank's clock, in steps."""
        return self._costs.steps(self._recorder.clock)

    @property
    def log(self) -> list[Event]:
        """The timed operations so far, with the memory that was stored when each started."""
        events = Trace(self.run.size, (tuple(self._recorder.ops),)).events(0)
        return [as_event(op, self._rank, m, self._costs) for op, m in zip(events, self._recorder.memory_at())]

    @property
    def final_weights(self) -> Mapping[int, Weight]:
        """The weights that `set_final_weight` has declared, by layer."""
        return FinalWeights(self._final)

    @property
    def made(self) -> Sequence[Value]:
        """Every value that this rank has made, by its number in the trace."""
        return self._recorder.values

    def storage(self) -> Storages:
        """The five dictionaries: weights, opt_states, activations, grad_activations, grad_weights."""
        return self.weights, self.opt_states, self.activations, self.grad_activations, self.grad_weights

    def memory(self) -> int:
        """Elements stored now; a value under two keys counts once."""
        stored = {id(value): value for storage in self.storage() for value in storage.values()}
        return sum(value.memory(self._costs) for value in stored.values())

    def status(self) -> None:
        """Prints the stored values."""
        print(f"rank {self._rank}, t={self._costs.text(self._recorder.clock)}, {self.memory():,} elements")
        for storage in self.storage():
            for key, value in storage.items():
                print(f"  {storage.name}[{key!r}]: {value} ({value.memory():,})")

    def __repr__(self) -> str:
        clock = self._costs.text(self._recorder.clock)
        return f"Model(rank={self._rank} of {self.RANKS}, layers={self.LAYERS}, batches={self.BATCHES}, t={clock})"

    def __setattr__(self, name: str, value: object) -> None:
        if name in READ_ONLY and hasattr(self, name):
            raise RuleError(
                SAYS("set by the runtime"),
                self._recorder.place(f"model.{name} = ..."),
                player_line(),
            )
        super().__setattr__(name, value)

    if not TYPE_CHECKING:  # a type checker should still refuse unknown names

        def __getattr__(self, name: str) -> NoReturn:
            """Refuses an unknown name, and suggests the name that was probably meant."""
            if name.startswith("_") or name in READ_ONLY:  # asked for before it is set
                raise AttributeError(name)
            raise NoSuchNameError(unknown_name(self, name), self._recorder.place(f"model.{name}"), player_line())

    # --- The results ---

    def set_final_weight(self, layer: int, weight: Weight) -> None:
        """Declares `weight` to be the result for its layer, or a part of the result. Takes no time."""
        self._compute("set_final_weight", operations.set_final_weight, layer, weight)
        before = self._final.get(index(layer))
        if before is not None and before.total == weight.total and not before.shards & weight.shards:
            weight = join_shards((before, weight))
        self._final[index(layer)] = weight

    def set_output(self, output: Activation) -> None:
        """Declares the last layer's activation to be a result of inference. Takes no time."""
        self._compute("set_output", operations.set_output, None, output)

    # --- What ranks do together ---

    def allreduce(self, v: T, layer: Any, group: Any = None) -> Awaitable[T]:
        """Returns the sum of every rank's `v`, on every rank. Takes 0.3 steps, counted from the moment the
        last rank joins.

        Between blocks it also sums parts of activations and of their gradients. For local replicas it averages weights.
        With a `group`, only these ranks take part: an axis of the mesh, several axes as a tuple, or ranks such as
        [0, 2]. `layer` is the layer of the value. Where communication overlaps with computation, a call starts it and
        returns a handle to await. There, a list of values with a list of layers is one call, a bucket.
        """
        return self._collective("allreduce", v, layer, group)  # type: ignore[no-any-return]  # a coroutine or a handle

    def allgather(self, v: T, layer: Any, group: Any = None) -> Awaitable[T]:
        """Returns the shards of all ranks joined, on every rank. Takes 0.3 steps, counted from the moment the
        last rank joins.

        Between blocks it also joins shares of the tokens. Arguments as in `allreduce`.
        """
        return self._collective("allgather", v, layer, group)  # type: ignore[no-any-return]  # a coroutine or a handle

    def scatterreduce(self, v: T, layer: Any, group: Any = None) -> Awaitable[T]:
        """Returns shard `rank` of RANKS of the sum of every rank's full `v` (reduce-scatter). Takes 0.3 steps,
        counted from the moment the last rank joins.

        Of parts from a block, it returns the sum for this rank's share of the tokens. In a group, the shard is the
        rank's place in the group. Arguments as in `allreduce`.
        """
        return self._collective("scatterreduce", v, layer, group)  # type: ignore[no-any-return]  # as above

    def broadcast(self, v: T | None, layer: Any, source: int = 0, group: Any = None) -> Awaitable[T]:
        """Returns the value of rank `source` on every rank; the other ranks give None as `v`. Starts when the last rank
        joins. `layer` and `group` as in `allreduce`."""
        return self._collective("broadcast", v, layer, group, root=source)  # type: ignore[no-any-return]  # as allreduce

    def reduce(self, v: T, layer: Any, to: int = 0, group: Any = None) -> Awaitable[T | None]:
        """Returns the sum of every rank's `v` on rank `to`, and None on the others. It sums what `allreduce` sums, and
        starts when the last rank joins. `layer` and `group` as in `allreduce`."""
        return self._collective("reduce", v, layer, group, root=to)  # type: ignore[no-any-return]  # as allreduce

    def dispatch(self, v: T, layer: Any, group: Any = None) -> Awaitable[T]:
        """Sends the tokens of full batches to their experts (all-to-all): returns the tokens of all ranks that go to
        this rank's expert. Arguments as in `allreduce`."""
        return self._collective("dispatch", v, layer, group)  # type: ignore[no-any-return]  # as above

    def collect(self, v: T, layer: Any, batches: Any, group: Any = None) -> Awaitable[T]:
        """The reverse of `dispatch`: returns some of the batches with all of their tokens. Each batch goes to one
        rank."""
        return self._collective("collect", v, layer, group, batches)  # type: ignore[no-any-return]  # as above

    def pass_to(self, rank: int, v: Any, tag: int = 0) -> Awaitable[None]:
        """Sends any object; 0.2 steps for each value in it. Waits while the last message to `rank` is unread.

        Messages with different tags do not wait for each other.
        """
        recorder, line = self._recorder, player_line()
        numbers: list[int] = []
        copies: list[Value] = []

        def take(value: Value) -> Value:
            operations.message((value,))
            numbers.append(recorder.claim(value))
            copies.append(copy_of(value))
            return copies[-1]

        try:
            self._ready()
            if isinstance(rank, Value):
                raise RuleError(SAYS("rank comes first"))
            self._costs.require_priced("pass_to")
            to = operations.partner(self._game, self._rank, rank)
            tag = operations.tag(self._game, tag)
            if hasattr(v, "__await__"):
                raise RuleError(SAYS("cannot send", value=object_text(v)))
            payload = map_values(take, v)
        except PuzzleError as why:
            shown = message_text("pass_to", "..." if isinstance(rank, Value) else rank, tag)
            raise why.at(recorder.place(shown), line) from None
        if self.run.costs.overlap:
            args = address(to, tag)
            call = self._write_call("pass_to", copies, tuple(numbers), 0, None, args, None, line)
            self.run.lanes.send(call, payload)
            return self._handle(call)
        sent = recorder.clock + message_ticks("pass_to", copies, self._costs, (self._rank, to))
        message = Message(payload, tuple(copies), sent, tag)
        wait = SendWait(self._rank, recorder.clock, line, to, message, tuple(numbers))
        return self._promise(wait, self.run.post, self._posted)

    def receive(self, source: int | None = None, tag: int = 0) -> Coroutine[Any, Any, Any]:
        """Returns a message from rank `source`; without it, the message that was sent first. Takes 0.2 steps for each
        value in it, from when it has been sent.

        Messages with the same `tag` are received in the order in which they were sent.
        """
        recorder, line = self._recorder, player_line()
        try:
            self._ready()
            self._costs.require_priced("receive")
            if source is not None:
                source = algebra.number(source, self.RANKS, "rank")
            tag = operations.tag(self._game, tag)
            if source is None and tag:
                raise RuleError(SAYS("tag without source", tag=tag))
        except PuzzleError as why:
            shown = message_text("receive", "..." if isinstance(source, Value) else source, tag)
            raise why.at(recorder.place(shown), line) from None
        wait = ReceiveWait(self._rank, recorder.clock, line, source, tag)
        return self._promise(wait, self.run.receive, self._received)

    # --- The end ---

    @staticmethod
    def check(models: Sequence[Model]) -> Report:
        """Judges a finished run, given its models, and prints the verdict.

        Raises:
            PuzzleError: an operation of the run was not allowed, or a layer's updated weight is missing.
        """
        from lib.judging.referee import referee  # here, because a run does without it

        report = referee(trace_of(models))
        if report.error is not None:
            raise report.error
        print(report.verdict())
        return report


def trace_of(models: Sequence[Model]) -> Trace:
    """The trace of a run, given all its models.

    Raises:
        RuleError: there are no models, they are of different runs, or some are missing.
    """
    if isinstance(models, Model):
        models = [models]
    models = list(models)
    for model in models:
        if not isinstance(model, Model):
            raise RuleError(SAYS("no models", got=object_text(model)))
    if not models:
        raise RuleError(SAYS("models missing"))
    run = models[0].run
    if any(model.run is not run for model in models):
        raise RuleError(SAYS("models of several runs"))
    missing = run.with_model - {model._rank for model in models}
    if missing:
        raise RuleError(SAYS("ranks missing", ranks=algebra.named("rank", sorted(missing))))
    for model in models:
        model.finish()
    return run.trace()
