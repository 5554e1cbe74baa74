"""The player's calls that concern one rank alone: loading values and computing with them."""

from collections.abc import Awaitable, Sequence
from typing import Any, Literal, overload

from lib.communication.calls import PendingValue
from lib.errors import PuzzleError, RuleError
from lib.rules import clipping, durations, layers, operations, outer, updating
from lib.trace.ops import NO_BATCHES, Op, call_text
from lib.values import algebra
from lib.values.base import Value, copy_of, object_text
from lib.values.kinds import Activation, ActivationGrad, Delta, OptState, OuterState, Parked, Weight, WeightGrad
from lib.values.scalar import Scalar

from .attention import AttentionCalls
from .recorder import RankRecorder, player_line
from .waits import CopyWait
from .words import SAYS


class Computation(AttentionCalls):
    """The operations of one rank that need no other rank. Durations are for the classic costs."""

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
        (layer, inp, weight), (back, *rest) = _sides(self._recorder, ahead, behind)
        batch = min(rest[1].batches) if isinstance(rest[1], ActivationGrad) else 0
        results: Any = self._compute("pair", layers.pair, layer, inp, weight, *rest, args=(back, batch))
        return results[0], (results[1], results[2])

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
        return self._compute("norm", clipping.norm, layer, grad)

    # --- An outer step: the change of a copy, the outer update, and the merge of a late average ---

    def delta(self, layer: int, before: Weight, after: Weight) -> Delta:
        """Returns the outer gradient: by how much the copy `after` has moved away from the agreed weight `before`.
        All-reduce it over the replicas. Takes no time."""
        return self._compute("delta", outer.delta, layer, before, after)

    def outer_update(
        self, layer: int, before: Weight, delta: Delta, outer_state: OuterState
    ) -> tuple[Weight, OuterState]:
        """Returns the agreed weight of the next round and its outer state, from the changes of all copies."""
        return self._compute("outer_update", outer.outer_update, layer, before, delta, outer_state)

    def merge(self, layer: int, copy: Weight, agreed: Weight) -> Weight:
        """Returns a mixture of a copy that has gone on and the agreed weight of the next round. Takes no time."""
        return self._compute("merge", outer.merge, layer, copy, agreed)

    def set_final_copy(self, layer: int, copy: Any) -> None:
        """Declares this replica's own weight after all steps to be final, besides the agreed weight."""
        self._compute("set_final_copy", outer.set_final_copy, layer, copy)


def _sides(recorder: RankRecorder, ahead: Any, behind: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The arguments of both sides of a pair, with layers as plain numbers."""
    try:
        recorder.costs.require_priced("pair")
        for side, n in ((ahead, 3), (behind, 4)):
            if not isinstance(side, tuple) or len(side) != n:
                raise RuleError(SAYS("arguments of a pair"))
        back = algebra.number(behind[0], recorder.game.layers, "layer")
        return ahead, (back, *behind[1:])
    except RuleError as why:
        raise why.at(recorder.place("forward_backward()"), player_line(1)) from None


class TierOperations(Computation):
    """Operations on memory tiers. Where communication overlaps with computation, each direction has its own lane, and
    so has a tier's processor."""

    def offload(self, v: Any, to: str = "host") -> Awaitable[Any]:
        """Copies a value to a memory tier. Keep the copy in `parked`; the value takes device memory until you delete
        it."""
        copied: Awaitable[Any] = self._on_tier("offload", [v], (to,))
        return copied

    def fetch(self, parked: Any) -> Awaitable[Any]:
        """Copies a parked value to the device. The parked value stays until you delete it."""
        copied: Awaitable[Any] = self._on_tier("fetch", [parked], ())
        return copied

    def move(self, parked: Any, to: str) -> Awaitable[Any]:
        """Copies a parked value to another memory tier, for the price of a fetch and an offload. It takes no device
        memory. The parked value stays until you delete it."""
        copied: Awaitable[Any] = self._on_tier("move", [parked], (to,))
        return copied

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
        return self._compute("update", updating.update, layer, *used)

    def _on_tier(
        self, name: str, given: Sequence[Any], args: tuple[str, ...], layer: int | None = None, makes: int = 1
    ) -> Any:
        recorder, line = self._recorder, player_line()
        try:
            self._ready()
            self.run.costs.require_priced(name)
            layer = None if layer is None else algebra.number(layer, self._game.layers, "layer")
            parts = [part for entry in given for part in self._one(name, entry)]
            numbers = tuple([part.number if isinstance(part, PendingValue) else recorder.claim(part) for part in parts])
            pending = any(isinstance(part, PendingValue) for part in parts)
            results, ticks = ((), 0) if pending else self._performed(name, layer, parts, args)
            if self.run.costs.overlap:
                call = self._write_call(name, parts, numbers, makes, layer, args, None, line)
                self.run.lanes.issue(call)
                return self._handle(call)
        except PuzzleError as why:
            raise why.at(recorder.place(call_text(name, layer)), line) from None
        wait = CopyWait(self._rank, recorder.clock, line, name)

        def written(*_: object) -> Any:
            copies = [copy_of(value) for value in results]
            recorder.write(name, copies, line, numbers, layer, NO_BATCHES, args, wait.clock, ticks)
            return copies[0] if makes == 1 else tuple(copies)

        return self._promise(wait, lambda _: True, written)

    def _one(self, name: str, given: Any) -> Sequence[Any]:
        """The given value, or the value that a call will make."""
        parts = self._parts(given)
        if len(parts) != 1 or isinstance(given, list):
            raise RuleError(SAYS("several values", name=name, got=object_text(given)))
        return parts

    def _performed(
        self, name: str, layer: int | None, used: Sequence[Any], args: tuple[str, ...]
    ) -> tuple[tuple[Value, ...], int]:
        """The result of an operation on a tier, and its ticks; refuses it if it is not allowed or does not fit."""
        results = operations.LOCAL_RULES[name](self._game, Op(name, 0, 0, layer, args=args), used)
        self._require_room(results)
        return results, durations.ticks(self._game, name, 1, used, results, self._rank)
