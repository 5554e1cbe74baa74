"""States what clipping by the global norm requires: the norm of every layer's gradient before the first update.

The squares of all gradients of a step are added up, and each update scales its gradient by the root of their sum
(Pascanu et al. 2013, section 3.2; torch.nn.utils.clip_grad_norm_).
"""

from lib.errors import RuleError
from lib.game.setting import Game
from lib.values.algebra import missing_text
from lib.values.base import Value, object_text, require_kind
from lib.values.kinds import WeightGrad
from lib.values.label_text import batches_text, norm_text
from lib.values.scalar import Scalar

from .words import SAYS


def norm(game: Game, layer: int, grad: Value) -> Scalar:
    """The sum of the squares of a layer's gradient, or of the shards of it that there are."""
    _require_clip(game, "norm")
    grad = require_kind(grad, WeightGrad, "grad")
    if grad.layer != layer:
        raise RuleError(SAYS("norm of another layer", grad=grad, layer=layer))
    if len(grad.batches) < grad.total_batches:
        missing = missing_text("batch", grad.batches, grad.total_batches)
        more = "the others" if grad.shares > 1 else missing
        raise RuleError(SAYS("norm of some batches", batches=batches_text(grad), missing=more))
    n = grad.total
    return Scalar.made(
        grad.layers, grad.step, frozenset(layer * n + i for i in grad.shards), grad.layers * n, grad.version
    )


def require_scale(game: Game, grad: WeightGrad, scale: Value | None) -> None:
    """An update scales its gradient by the norm of all gradients of its step, where the game clips, and only there."""
    if scale is None:
        if game.setting.clip:
            raise RuleError(SAYS("no scale"))
        return
    _require_clip(game, "scale=")
    if type(scale) is not Scalar:
        raise RuleError(SAYS("scale no norm", scale=object_text(scale)))
    if (scale.step, scale.version) != (grad.step, grad.version):
        raise RuleError(SAYS("norm of another step", scale=scale, grad=grad))
    if not scale.is_complete():
        raise RuleError(SAYS("partial norm", norm=norm_text(scale)))


def _require_clip(game: Game, call: str) -> None:
    if not game.setting.clip:
        raise RuleError(SAYS("no clipping", call=call))
