"""The player's calls that compute layers of attention on shares of the tokens, and exchange tokens for heads."""

from collections.abc import Awaitable, Sequence
from typing import Any, TypeVar

from lib.errors import RuleError
from lib.rules import attention
from lib.values.base import object_text
from lib.values.kinds import Activation, ActivationGrad, KeyValue, KeyValueGrad, Weight, WeightGrad

from .rank import RankOperations
from .recorder import player_line

T = TypeVar("T")


class AttentionCalls(RankOperations):
    """What a rank computes of attention. Prices are those of the costs, for the share of the work."""

    def keys(self, layer: int, inp: Activation, weight: Weight) -> KeyValue:
        """The keys and values of some tokens, for `attend`."""
        made: tuple[KeyValue] = self._compute("keys", attention.keys, layer, inp, weight)
        return made[0]

    def attend(
        self, layer: int, inp: Activation, keys: Sequence[KeyValue], into: Activation | None = None
    ) -> Activation:
        """The input of the next layer for the tokens of `inp`, as far as it comes from these keys: a part of a sum
        until they have seen all tokens up to their own. With `into`, a part of it, both are added in its place."""
        more = () if into is None else (into,)
        made: tuple[Activation] = self._compute(
            "attend", attention.attend, layer, inp, *self._blocks("attend", keys), *more
        )
        return made[0]

    def attend_backward(
        self, layer: int, inp: Activation, keys: Sequence[KeyValue], grad: ActivationGrad
    ) -> tuple[ActivationGrad, list[KeyValueGrad]]:
        """The gradient of the queries through these keys, and the gradient of each of the keys from these queries."""
        through, *of_keys = self._compute(
            "attend_backward", attention.attend_backward, layer, inp, *self._blocks("attend_backward", keys), grad
        )
        return through, of_keys

    def keys_backward(
        self, layer: int, inp: Activation, grad_keys: KeyValueGrad, weight: Weight, grad: ActivationGrad
    ) -> tuple[WeightGrad, ActivationGrad]:
        """The weight gradient of some tokens, and the gradient for the layer before: from the gradient of their keys
        from all later queries, and that of their queries through all earlier keys."""
        made: tuple[WeightGrad, ActivationGrad]
        made = self._compute("keys_backward", attention.keys_backward, layer, inp, grad_keys, weight, grad)
        return made

    def block_forward(
        self, layer: int, inp: Activation, weight: Weight, past: Sequence[KeyValue] = ()
    ) -> tuple[Activation, KeyValue]:
        """`keys` and `attend`: the next layer's input for some tokens, and their keys and values. `past` has those of
        all earlier tokens."""
        own = self.keys(layer, inp, weight)
        return self.attend(layer, inp, [*past, own]), own

    def block_backward(
        self,
        layer: int,
        inp: Activation,
        keys: Sequence[KeyValue],
        grad: ActivationGrad,
        weight: Weight,
        grad_keys: Sequence[KeyValueGrad] = (),
    ) -> tuple[WeightGrad, ActivationGrad, list[KeyValueGrad]]:
        """`attend_backward` and `keys_backward`: the weight gradient of some tokens, the gradient for the layer before,
        and the gradients of all `keys` but the last, which are their own. `grad_keys` has the gradients of the keys
        from all later tokens, as the call for those returned them; they are added."""
        through, made = self.attend_backward(layer, inp, keys, grad)
        *of_past, own = [one + other for one, other in zip(grad_keys, made, strict=True)] if grad_keys else made
        of_weight, before = self.keys_backward(layer, inp, own, weight, through)
        return of_weight, before, of_past

    def heads(self, v: T, layer: Any, group: Any = None) -> Awaitable[T]:
        """All tokens for a part of the heads, in exchange for some tokens with all heads (all-to-all): the i-th of n
        ranks brings share i of n of the tokens, and gets part i of n of the heads. Arguments as in `allreduce`."""
        return self._collective("heads", v, layer, group)  # type: ignore[no-any-return]  # a coroutine or a handle

    def tokens(self, v: T, layer: Any, group: Any = None) -> Awaitable[T]:
        """The way back from `heads`."""
        return self._collective("tokens", v, layer, group)  # type: ignore[no-any-return]  # a coroutine or a handle

    def _blocks(self, call: str, keys: Any) -> Sequence[KeyValue]:
        """A list of keys, as a player gives it."""
        if isinstance(keys, (list, tuple)):
            return keys
        why = RuleError(f"pass a list of what keys(...) returned, such as [kv]; got {object_text(keys)}")
        raise why.at(self._recorder.place(f"{call}()"), player_line(1))
