"""The player's interface to one rank: its operations, dictionaries and clock.

One class has all calls, so that `dir(model)` and an editor list them; what a game has no price for is refused with its
reason. Models with the calls of their game only would hide from a player that a call exists.

This module decides how calls are named and what they return. They are checked and recorded in `rank`, by the rules in
`operations`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Coroutine, Mapping, Sequence
from operator import index
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeVar, overload

from lib.errors import PuzzleError, RuleError, Sentence, Sentences, meant
from lib.ledger import algebra, attention, layers, operations, updates
from lib.ledger.meetings import PendingValue
from lib.ledger.trace import TIMED, Event, Op, Trace, address, as_event, call_text, message_text
from lib.ledger.values import (
    Activation,
    ActivationGrad,
    Delta,
    KeyValue,
    KeyValueGrad,
    OptState,
    OuterState,
    Parked,
    Scalar,
    Value,
    Weight,
    WeightGrad,
    join_shards,
    object_text,
)

from .live_run import Dist
from .rank import RankOperations, cannot_send, map_values
from .recorder import FinalWeights, Storage, player_line
from .waits import ReceiveWait

if TYPE_CHECKING:
    from lib.ledger.referee import Report


# --- The name that was meant, when a model does not have a name ---

OTHER_NAMES = {
    "allreduce": ("reduce", "sum"),
    "allgather": ("gather",),
    "scatterreduce": ("reducescatter", "scatter"),
    "pass_to": ("send", "isend", "sendto", "put", "pass", "passon"),
    "receive": ("recv", "irecv", "receivefrom", "get", "wait"),
    "load_weights": ("load", "loadweight", "getweights", "getweight"),
    "get_activation": ("getactivations", "activation", "input", "getinput"),
    "update": ("step", "optimize", "updateweights", "optimizerstep"),
    "set_final_weight": ("setfinalweights", "finalweight", "final"),
    "rank": ("id", "myrank", "deviceid"),
    "RANKS": ("worldsize", "numranks", "nranks", "size"),
    "LAYERS": ("numlayers", "nlayers"),
    "BATCHES": ("numbatches", "nbatches", "microbatches"),
}
"""For each name of a model, the names that other libraries use, in lower case and without underscores."""


class NoSuchNameError(RuleError, AttributeError):
    """A name that a model does not have; also an AttributeError, as for any object."""


def unknown_name(model: Any, name: str) -> Sentence:
    """The sentence about an unknown name of a model: the call that was probably meant, or all calls."""
    public = [attribute for attribute in dir(model) if not attribute.startswith("_") and _exists(model, attribute)]
    calls = [attribute for attribute in public if inspect.isroutine(getattr(model, attribute))]
    near = meant(name, (*public, *OTHER_NAMES), OTHER_NAMES)
    advice = f"write '{_usage(model, near)}'" if near else f"its calls are {', '.join(calls)}"
    return SAYS("no such name", name=name, meant=near, advice=advice)


def _exists(model: Any, name: str) -> bool:
    """True if the model's game has a name. Calls without a price, or without the mesh they need, are missing in some
    games."""
    if name in ("axis", "index"):
        return bool(model.run.mesh.axes)
    return name not in TIMED or model.run.costs.priced(name)


def _usage(model: Any, name: str) -> str:
    """How a player writes a name of a model, with required arguments: 'await model.allgather(v, layer)',
    'model.RANKS'."""
    method = getattr(model, name)
    if not inspect.isroutine(method):
        return f"model.{name}"
    signature = inspect.signature(method)
    required = [parameter.name for parameter in signature.parameters.values() if parameter.default is parameter.empty]
    waits = "await " if re.search("Awaitable|Coroutine", str(signature.return_annotation)) else ""
    return f"{waits}model.{name}({', '.join(required)})"


T = TypeVar("T")

Storages = tuple[Storage[Weight], Storage[OptState], Storage[Activation], Storage[ActivationGrad], Storage[WeightGrad]]

READ_ONLY = frozenset(
    ("rank", "dist", "run", "RANKS", "LAYERS", "BATCHES", "SHARES", "time", "log", "final_weights")
    + ("weights", "opt_states", "activations", "grad_activations", "grad_weights", "parked")
)
"""Attributes of a model that the runtime sets and a player may only read."""


class Model(RankOperations):
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

    # --- Loading values and computing with them; durations are for the classic costs ---

    @overload
    def load_weights(self, layer: int, shard: int = 0, total: int = 1) -> tuple[Weight, OptState]: ...
    @overload
    def load_weights(self, layer: int, shard: int = 0, total: int = 1, *, tier: str) -> tuple[Parked, Parked]: ...
    @overload
    def load_weights(
        self, layer: int, shard: int = 0, total: int = 1, *, outer: Literal[True]
    ) -> tuple[Weight, OptState, OuterState]: ...
    def load_weights(
        self, layer: int, shard: int = 0, total: int = 1, *, tier: str | None = None, outer: bool = False
    ) -> Any:
        """Returns shard `shard` of `total` of a layer's weight and of its optimizer state. Takes no time.

        With a `tier`, such as "host", both are parked there. With `outer`, the outer optimizer's state comes third.
        """
        return self._source("load_weights", operations.load_weights, layer, shard, total, tier, outer)

    def get_activation(self, batches: Any, step: int = 0, shares: Any = None) -> Activation:
        """Returns the model's input for some microbatches, such as [0] or range(4). Takes no time.

        Each `step` has its own batches. For attention, `shares` names some shares of the tokens, such as [0, 7].
        """
        return self._source("get_activation", operations.get_activation, None, batches, step, shares)

    def fake_grad(self, layer: int, batches: Any, step: int = 0) -> WeightGrad:
        """Returns a made-up gradient: zero for no batches; a gradient of some batches is refused in puzzles. Takes no
        time."""
        return self._source("fake_grad", operations.fake_grad, layer, batches, step)

    def forward(self, layer: int, inp: Activation, weight: Weight) -> Activation:
        """Returns the input of the next layer; 1 step for each batch.

        With a shard of a block's weight, it takes this share of the time and returns a part of a sum. Each of the
        experts takes its own tokens.
        """
        return self._compute("forward", layers.forward, layer, inp, weight)

    def loss(self, inp: Activation) -> ActivationGrad:
        """Returns the gradient of the loss with respect to the last layer's output. Store it in
        `grad_activations[LAYERS]`. Takes no time.
        """
        return self._compute("loss", layers.loss, None, inp)

    def backward(
        self, layer: int, inp: Activation, grad: ActivationGrad, weight: Weight
    ) -> tuple[WeightGrad, ActivationGrad]:
        """Returns two gradients: the layer's weight gradient, and the one to pass to `backward(layer - 1)`; 1 step for
        each batch.

        With a shard of a block, it takes this share of the time, and the second gradient is a part of a sum. For an
        embedding the second gradient is None, because token numbers have no gradient.
        """
        grads: Any = self._compute("backward", layers.backward, layer, inp, grad, weight)
        return grads if len(grads) == 2 else (*grads, None)

    def forward_backward(
        self, ahead: tuple[int, Activation, Weight], behind: tuple[int, Activation, ActivationGrad, Weight]
    ) -> tuple[Activation, tuple[WeightGrad, ActivationGrad]]:
        """Computes the forward of one microbatch and the backward of another at once: returns the results of
        `forward(*ahead)` and of `backward(*behind)`.

        Only where the costs price a pair.
        """
        (layer, inp, weight), (back, *rest) = self._sides(ahead, behind)
        batch = min(rest[1].batches) if isinstance(rest[1], ActivationGrad) else 0
        results: Any = self._compute("pair", layers.pair, layer, inp, weight, *rest, args=(back, batch))
        return results[0], (results[1], results[2])

    def _sides(self, ahead: Any, behind: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """The arguments of both sides of a pair, with layers as plain numbers."""
        try:
            self._costs.require_priced("pair")
            for side, n in ((ahead, 3), (behind, 4)):
                if not isinstance(side, tuple) or len(side) != n:
                    raise RuleError(SAYS("arguments of a pair"))
            return ahead, (algebra.number(behind[0], self.LAYERS, "layer"), *behind[1:])
        except RuleError as why:
            raise why.at(self._recorder.place("forward_backward()"), player_line(1)) from None

    def backward_input(self, layer: int, inp: Activation, grad: ActivationGrad, weight: Weight) -> ActivationGrad:
        """Returns the half of backward that the previous layer waits for: the gradient to pass to
        `backward_input(layer - 1)`.

        Only where the costs price it.
        """
        return self._compute("backward_input", layers.backward_input, layer, inp, grad, weight)

    def backward_weight(
        self,
        layer: int,
        inp: Activation,
        grad: ActivationGrad,
        weight: Weight | None = None,
        total: ActivationGrad | None = None,
    ) -> WeightGrad:
        """Returns the other half of backward, the weight gradient. It may be called at any later time.

        For a block it needs the weight too; for a head that is cut by vocabulary, as `total`, the sum of all input
        gradients.
        """
        used = (inp, grad, *(value for value in (weight, total) if value is not None))
        return self._compute("backward_weight", layers.backward_weight, layer, *used)

    def norm(self, layer: int, grad: WeightGrad) -> Scalar:
        """Returns the norm of a layer's gradient, of one element, to add to the norms of the other layers and to pass
        to `update` as `scale`. Takes no time; only where the setting clips gradients."""
        return self._compute("norm", updates.norm, layer, grad)

    # --- An outer step: the change of a copy, the outer update, and the merge of a late average ---

    def delta(self, layer: int, before: Weight, after: Weight) -> Delta:
        """Returns the outer gradient: by how much the copy `after` has moved away from the agreed weight `before`.
        All-reduce it over the replicas. Takes no time."""
        return self._compute("delta", updates.delta, layer, before, after)

    def outer_update(
        self, layer: int, before: Weight, delta: Delta, outer_state: OuterState
    ) -> tuple[Weight, OuterState]:
        """Returns the agreed weight of the next round and its outer state, from the changes of all copies."""
        return self._compute("outer_update", updates.outer_update, layer, before, delta, outer_state)

    def merge(self, layer: int, copy: Weight, agreed: Weight) -> Weight:
        """Returns a mixture of a copy that has gone on and the agreed weight of the next round. Takes no time."""
        return self._compute("merge", updates.merge, layer, copy, agreed)

    def set_final_copy(self, layer: int, copy: Any) -> None:
        """Declares this replica's own weight after all steps to be final, besides the agreed weight."""
        self._compute("set_final_copy", updates.set_final_copy, layer, copy)

    # --- Layers of attention, on shares of the tokens: each call takes its share of the price ---

    def keys(self, layer: int, inp: Activation, weight: Weight) -> KeyValue:
        """Returns the keys and values of some tokens, for `attend`."""
        return self._compute("keys", attention.keys, layer, inp, weight)

    def attend(
        self, layer: int, inp: Activation, keys: Sequence[KeyValue], into: Activation | None = None
    ) -> Activation:
        """Returns the next layer's input for the tokens of `inp`: a part of a sum until it includes the keys of all
        tokens up to their own. With `into`, an earlier part, the new part is added to it in place."""
        more = () if into is None else (into,)
        return self._compute("attend", attention.attend, layer, inp, *self._blocks("attend", keys), *more)

    def attend_backward(
        self, layer: int, inp: Activation, keys: Sequence[KeyValue], grad: ActivationGrad
    ) -> tuple[ActivationGrad, list[KeyValueGrad]]:
        """Returns the gradient of the queries through these keys, and a list with the gradient of each of the keys from
        these queries."""
        blocks = self._blocks("attend_backward", keys)
        grads: Any = self._compute("attend_backward", attention.attend_backward, layer, inp, *blocks, grad)
        through, *of_keys = grads
        return through, of_keys

    def keys_backward(
        self, layer: int, inp: Activation, grad_keys: KeyValueGrad, weight: Weight, grad: ActivationGrad
    ) -> tuple[WeightGrad, ActivationGrad]:
        """Returns the weight gradient of some tokens, and the gradient for the previous layer. `grad_keys` comes from
        all later queries; `grad` is the gradient of the queries through all earlier keys."""
        return self._compute("keys_backward", attention.keys_backward, layer, inp, grad_keys, weight, grad)

    def block_forward(
        self, layer: int, inp: Activation, weight: Weight, past: Sequence[KeyValue] = ()
    ) -> tuple[Activation, KeyValue]:
        """`keys` and `attend` in one: returns the next layer's input for some tokens, and their keys and values. `past`
        has the keys and values of all earlier tokens."""
        keys = self.keys(layer, inp, weight)
        return self.attend(layer, inp, [*past, keys]), keys

    def block_backward(
        self,
        layer: int,
        inp: Activation,
        keys: Sequence[KeyValue],
        grad: ActivationGrad,
        weight: Weight,
        grad_keys: Sequence[KeyValueGrad] = (),
    ) -> tuple[WeightGrad, ActivationGrad, list[KeyValueGrad]]:
        """`attend_backward` and `keys_backward` in one: returns the weight gradient of some tokens, the gradient for
        the previous layer, and the gradients of all `keys` but the last, which are the tokens' own. `grad_keys` has the
        gradients of these keys from all later tokens, as the call for those tokens returned them."""
        through, block_grads = self.attend_backward(layer, inp, keys, grad)
        *of_past, key_grad = (
            [one + other for one, other in zip(grad_keys, block_grads, strict=True)] if grad_keys else block_grads
        )
        of_weight, before = self.keys_backward(layer, inp, key_grad, weight, through)
        return of_weight, before, of_past

    def heads(self, v: T, layer: Any, group: Any = None) -> Awaitable[T]:
        """Exchanges tokens for heads (all-to-all): the i-th of n ranks contributes share i of n of the tokens, with all
        heads, and gets part i of n of the heads, for all tokens. Arguments as in `allreduce`."""
        return self._collective("heads", v, layer, group)

    def tokens(self, v: T, layer: Any, group: Any = None) -> Awaitable[T]:
        """The reverse of `heads`."""
        return self._collective("tokens", v, layer, group)

    def _blocks(self, call: str, keys: Any) -> Sequence[KeyValue]:
        if isinstance(keys, (list, tuple)):
            return keys
        why = RuleError(SAYS("no keys", got=object_text(keys)))
        raise why.at(self._recorder.place(f"{call}()"), player_line(1))

    # --- Memory tiers: with overlap each direction has its own lane, and so has a tier's processor ---

    def offload(self, v: Any, to: str = "host") -> Awaitable[Any]:
        """Copies a value to a memory tier. Keep the copy in `parked`; the value takes device memory until you delete
        it."""
        return self._on_tier("offload", [v], (to,))

    def fetch(self, parked: Any) -> Awaitable[Any]:
        """Copies a parked value to the device. The parked value stays until you delete it."""
        return self._on_tier("fetch", [parked], ())

    def move(self, parked: Any, to: str) -> Awaitable[Any]:
        """Copies a parked value to another memory tier, for the price of a fetch and an offload. It takes no device
        memory. The parked value stays until you delete it."""
        return self._on_tier("move", [parked], (to,))

    @overload
    def update(
        self,
        layer: int,
        weight_grad: WeightGrad,
        weight: Weight,
        opt_state: OptState,
        shard: object = 0,
        *,
        scale: Scalar | None = None,
    ) -> tuple[Weight, OptState]: ...
    @overload
    def update(
        self,
        layer: int,
        weight_grad: Any,
        weight: Any,
        opt_state: Any,
        shard: object = 0,
        *,
        on: str,
        scale: Any = None,
    ) -> Awaitable[tuple[Parked, Parked]]: ...
    def update(
        self,
        layer: int,
        weight_grad: Any,
        weight: Any,
        opt_state: Any,
        shard: object = 0,
        *,
        on: str | None = None,
        scale: Any = None,
    ) -> Any:
        """Returns the weight and optimizer state after the step, for the shards that `weight` holds; 0.5 steps.

        With a tier that has a processor, such as `on="host"`, all are parked there, and the call is awaited. Where
        communication overlaps with computation, handles may stand for values: `handle[0]` for the new weight, and
        `handle[1]` for the new state.

        Where the setting clips gradients, `scale` is the norm of the gradients of all layers.

        `shard` is accepted for schedules of the original game, and ignored: the values have their own shards.
        """
        used = (weight_grad, weight, opt_state, *(() if scale is None else (scale,)))
        if on is not None:
            return self._on_tier("tier_update", used, (on,), layer, 2)
        return self._compute("update", updates.update, layer, *used)

    def _on_tier(
        self, name: str, given: Sequence[Any], args: tuple[str, ...], layer: int | None = None, makes: int = 1
    ) -> Awaitable[Any]:
        recorder, line = self._recorder, player_line()
        try:
            self._ready()
            self.run.costs.require_priced(name)
            layer = None if layer is None else algebra.number(layer, self._game.layers, "layer")
            parts = [self._one(name, entry) for entry in given]
            numbers = tuple([part.number if isinstance(part, PendingValue) else recorder.claim(part) for part in parts])
            if not any(isinstance(part, PendingValue) for part in parts):  # refuse what is not allowed, or does not fit
                made = operations.LOCAL_RULES[name](self._game, Op(name, 0, 0, layer, args=args), parts)
                self._require_room(made)
                operations.ticks(self._game, name, 1, parts, made, self._rank)
        except PuzzleError as why:
            raise why.at(recorder.place(call_text(name, layer)), line) from None
        return self._begin(name, parts, numbers, layer, args, None, line, makes=makes)

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
        return self._collective("allreduce", v, layer, group)

    def allgather(self, v: T, layer: Any, group: Any = None) -> Awaitable[T]:
        """Returns the shards of all ranks joined, on every rank. Takes 0.3 steps, counted from the moment the
        last rank joins.

        Between blocks it also joins shares of the tokens. Arguments as in `allreduce`.
        """
        return self._collective("allgather", v, layer, group)

    def scatterreduce(self, v: T, layer: Any, group: Any = None) -> Awaitable[T]:
        """Returns shard `rank` of RANKS of the sum of every rank's full `v` (reduce-scatter). Takes 0.3 steps,
        counted from the moment the last rank joins.

        Of parts from a block, it returns the sum for this rank's share of the tokens. In a group, the shard is the
        rank's place in the group. Arguments as in `allreduce`.
        """
        return self._collective("scatterreduce", v, layer, group)

    def broadcast(self, v: T | None, layer: Any, source: int = 0, group: Any = None) -> Awaitable[T]:
        """Returns the value of rank `source` on every rank; the other ranks give None as `v`. Starts when the last rank
        joins. `layer` and `group` as in `allreduce`."""
        return self._collective("broadcast", v, layer, group, root=source)

    def reduce(self, v: T, layer: Any, to: int = 0, group: Any = None) -> Awaitable[T | None]:
        """Returns the sum of every rank's `v` on rank `to`, and None on the others. It sums what `allreduce` sums, and
        starts when the last rank joins. `layer` and `group` as in `allreduce`."""
        return self._collective("reduce", v, layer, group, root=to)

    def dispatch(self, v: T, layer: Any, group: Any = None) -> Awaitable[T]:
        """Sends the tokens of full batches to their experts (all-to-all): returns the tokens of all ranks that go to
        this rank's expert. Arguments as in `allreduce`."""
        return self._collective("dispatch", v, layer, group)

    def collect(self, v: T, layer: Any, batches: Any, group: Any = None) -> Awaitable[T]:
        """The reverse of `dispatch`: returns some of the batches with all of their tokens. Each batch goes to one
        rank."""
        return self._collective("collect", v, layer, group, batches)

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
            copies.append(value.copied())
            return copies[-1]

        try:
            self._ready()
            if isinstance(rank, Value):
                raise RuleError(SAYS("rank comes first"))
            self._costs.require_priced("pass_to")
            to = operations.partner(self._game, self._rank, rank)
            tag = operations.tag(self._game, tag)
            if hasattr(v, "__await__"):
                raise cannot_send(object_text(v))
            payload = map_values(take, v)
        except PuzzleError as why:
            shown = message_text("pass_to", "..." if isinstance(rank, Value) else rank, tag)
            raise why.at(recorder.place(shown), line) from None
        args = address(to, tag)
        return self._begin("pass_to", copies, tuple(numbers), None, args, None, line, payload=payload, makes=0)

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
        from lib.ledger.referee import referee  # here, because a run does without it

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


SAYS = Sentences(
    {
        "no such name": "a model has no '{name}'; {advice}",
        "no keys": "pass a list of what keys(...) returned, such as [kv]; got {got}",
        "arguments of a pair": "forward_backward takes (layer, inp, weight) for a forward and (layer, inp, grad, weight) for a backward",
        "no Dist": "Model: dist must be a Dist, such as Dist(4); got {got}",
        "set by the runtime": "the runtime sets this; read it, or change the contents of a dictionary, but do not replace it",
        "rank comes first": "the rank comes first: pass_to(rank, value)",
        "tag without source": "a message with a tag needs its source; write receive(0, tag={tag})",
        "no models": "pass the models of a run, such as [model] or the list that gather returns; got {got}",
        "models missing": "pass the models of a run; got none",
        "models of several runs": "these models belong to different runs; pass the models of one Dist, one for each rank",
        "ranks missing": "no model of {ranks} was passed; pass the models of all ranks",
    }
)
