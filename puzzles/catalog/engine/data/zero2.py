"""ZeRO2: gradients are reduce-scattered as soon as they exist."""

from puzzles.catalog.engine.puzzle import EnginePuzzle
from puzzles.catalog.papers import ZERO

PUZZLE = EnginePuzzle(
    slug="ZeRO2",
    title="Gradients in shards, as soon as they exist",
    targets={"sent": 12_288, "flops": 20_480, "peak": 17_792, "kept": 10_240},
    arithmetic="""\
Each gradient is 4,096 B. Reduce-scatter sends 3/4 of both, 6,144 B, in backward; all-gather sends 3 x 1,024
B of each updated weight, 6,144 B, in the step: 12,288 B together, what an all-reduce of the gradients
sends. The flops are those of data parallel training, 20,480.

Peak, when the second gradient is scattered: weights 8,192, a quarter of the state 2,048, one whole gradient
4,096, the shards of both 2,048, z and dz 512 each, and x, grads and the output 128 each: 17,792 B. The step
needs less: 8,192 + 2,048, shards 2,048, the gathered weight 4,096, its own new rows 1,024: 17,408 B. If
both whole gradients are kept until they are summed, as stage 1 allows, it is 4,096 more: 21,888 B.
""",
    statement="""\
Data parallel training of `relu(x @ w0) @ w1` with momentum, as in ZeRO1, but backward and step are two
calls, as an optimizer makes them: between the two, gradients lie around. In stage 1 these are whole
gradients, 8,192 B. Now a device keeps no more of them than its state is for: its quarter of the rows of
each.

`backward` returns your shards of both summed gradients, and keeps them for the step. `step(rate)` makes it:
`state = momentum * state + grad`, `weight = weight - rate * state`; it returns the dictionary of updated
weights, whole, on every device. Afterwards the shards of the gradients are gone.

The peak leaves room for one layer's whole gradient, beside shards. Scatter it before you make the next.
Other sizes and another number of devices are tried as well.
""",
    starter='''\
class ZeRO2(ShardedEngine):
    """Gradients in shards, as soon as they exist."""

    def __init__(self, model_dim, hidden_dim, momentum):
        """Make room for the weights, and for your quarter of the state."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    def load_checkpoint(self, params):
        """Copy the weights out of params; they are only lent."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    def forward(self, x):
        """x: your rows, (2, 16). Returns (2, 16)."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    def backward(self, grads):
        """grads: (2, 16). Returns your shards of both gradients: (4, 64) and (16, 16)."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    def step(self, rate):
        """rate: a number. Returns the updated weights (your own arrays, not copies)."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----
''',
    hints=(
        "Backward makes the gradient of w1 first. Does it have to wait for the one of w0?",
        (
            "What has a name lives until the name goes. An expression that goes straight into "
            "`self.reduce_scatter(...)` has none: only the shard stays."
        ),
        (
            "`self.shards['layer_1/weights'] = self.reduce_scatter(relu(z).T @ grads)` comes before `dz`; then the "
            "other layer likewise. Return `self.shards`, and let `step` take them out with `self.shards.pop(name)`."
        ),
    ),
    concept="""\
A whole gradient is needed for a moment only: from when backward has made it until it is summed. If each
device then keeps the rows that it will update, gradients take an N-th of the memory as well, and not a byte
more is sent.
""",
    in_practice="""\
This is stage 2 of ZeRO (Rajbhandari et al. 2020). DeepSpeed reduces gradients in buckets while backward
runs, so there is a bucket in the place of our layer. With gradient accumulation every microbatch is
scattered, and sent, anew: there stage 1, which sums whole gradients at home and sends once, may be the
quicker one.
""",
    sources=(ZERO,),
)
