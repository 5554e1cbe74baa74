"""The player's calls that compute attention layers on shares of the tokens, and exchange tokens for heads."""

from collections.abc import Awaitable, Sequence
from typing import Any, TypeVar

from lib.errors import RuleError
from lib.rules import attention
from lib.values.base import object_text
from lib.values.kinds import Activation, ActivationGrad, KeyValue, KeyValueGrad, Weight, WeightGrad

from .rank import RankOperations
from .recorder import player_line
from .words import SAYS

T = TypeVar("T")


class AttentionCalls(RankOperations):
    """The attention calls of a rank. Each takes its share of the price in the costs."""

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
        return self._collective("heads", v, layer, group)  # type: ignore[no-any-return]  # a coroutine or a handle

    def tokens(self, v: T, layer: Any, group: Any = None) -> Awaitable[T]:
        """The reverse of `heads`."""
        return self._collective("tokens", v, layer, group)  # type: ignore[no-any-return]  # a coroutine or a handle

    def _blocks(self, call: str, keys: Any) -> Sequence[KeyValue]:
        if isinstance(keys, (list, tuple)):
            return keys
        why = RuleError(SAYS("no keys", got=object_text(keys)))
        raise why.at(self._recorder.place(f"{call}()"), player_line(1))
