"""The sizes of a replay's tensors: those of the game, or small ones, by layer and microbatch."""

from __future__ import annotations

from math import lcm

from lib.errors import TraceError
from lib.game.costs import Costs
from lib.game.kinds import EMBEDDING, HEAD, Kind
from lib.game.setting import Setting

SMALL = 16, 8
"""Width and tokens for tests: the game's, 32 times smaller; with 16 ranks, each still holds a row."""

VOCABULARY = (EMBEDDING, HEAD)
"""The kinds whose tensor has a row for each token number."""


class Shapes:
    """Widths, rows and tokens. An embedding and a head have V rows, whole multiples of the width; every other layer has
    as many as it is wide.

    Raises:
        TraceError: a size of the game is not that of any such tensor.
    """

    def __init__(self, setting: Setting, small: bool) -> None:
        costs, self.kinds, self.lengths = setting.costs, setting.kinds, setting.lengths
        self.hidden, self.length = SMALL if small else (costs.hidden, costs.length)
        if small:
            self.length = lcm(self.length, setting.shares, *[length.denominator for length in self.lengths])
        kinds = {name: self._kind(name, kind, costs) for name, kind in costs.kinds.items() if name in self.kinds}
        self.costs = Costs(
            "tensors", self.hidden, self.length, kinds=kinds, keys_values=self.hidden * self.length
        ).for_game(self.kinds, self.lengths)
        """The sizes of the tensors, as costs."""

    def _kind(self, name: str, kind: Kind, costs: Costs) -> Kind:
        if name not in VOCABULARY or kind.weight is None:
            if (kind.inp, kind.out) != (None, None) or name in VOCABULARY:
                raise TraceError(
                    f"a replay knows no tensors for the kind {name!r}: an {EMBEDDING} and a {HEAD} have a weight of V "
                    "rows, other kinds make and take what a layer does"
                )
            return Kind()
        rows, left = divmod(kind.weight, costs.hidden)
        times, odd = divmod(rows, costs.hidden)
        sizes = (costs.length, None) if name == EMBEDDING else (None, costs.length * rows)
        if left or odd or (kind.inp, kind.out) != sizes:
            raise TraceError(
                f"a replay's {name} has a weight of V x {costs.hidden:,}, V a multiple of {costs.hidden:,}, and "
                f"{'takes a number for each token' if name == EMBEDDING else 'makes V logits for each token'}"
            )
        rows = times * self.hidden
        return Kind(rows * self.hidden, *((self.length, None) if name == EMBEDDING else (None, self.length * rows)))

    def rows(self, layer: int) -> int:
        """The rows of a layer's weight."""
        return self.hidden if self.costs.unequal is None else self.costs.unequal.weight(layer) // self.hidden

    def width(self, layer: int) -> int | None:
        """The width of a layer's input, or past the last layer of the output, if it is not hidden."""
        if not self.kinds or not ((layer == 0 and self.kinds[0] == EMBEDDING) or self.is_logits(layer)):
            return None
        return 1 if layer == 0 else self.rows(layer - 1)

    def is_logits(self, layer: int) -> bool:
        """True if a layer's input is what a head makes."""
        return layer == len(self.kinds) > 0 and self.kinds[-1] == HEAD

    def tokens(self, batch: int) -> int:
        """The tokens of a microbatch."""
        return int(self.length * self.lengths[batch]) if self.lengths else self.length


def odd_kinds(setting: Setting) -> list[str]:
    """The kinds whose weight is larger or smaller than its tensor in a replay."""
    kinds, usual = setting.costs.kinds, (None, setting.costs.hidden**2)
    own = {name for name in setting.kinds if name in kinds and kinds[name].weight not in usual}
    return sorted(own - {*VOCABULARY})
