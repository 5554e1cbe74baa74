"""ZeRO2: gradients are reduce-scattered as soon as they exist."""

from puzzles.catalog.engine.puzzle import EnginePuzzle
from puzzles.catalog.papers import ZERO

PUZZLE = EnginePuzzle(
    slug="ZeRO2",
    title="Shard gradients as soon as they exist",
    targets={"sent": 12_288, "flops": 20_480, "collectives": 4, "peak": 17_792, "kept": 10_240},
    arithmetic="""\
Each gradient is 4,096 B. Reduce-scatter sends 3/4 of both, 6,144 B, in backward. All-gather sends 3 x 1,024 B
of each updated weight, 6,144 B, in the step. Together that is 12,288 B, the same as an all-reduce of the
gradients. The flops are the same as in data parallel training, 20,480.

Memory peaks when the second gradient is scattered: weights 8,192, a quarter of the state 2,048, one full
gradient 4,096, the shards of both 2,048, z and dz 512 each, and x, grads and the output 128 each: 17,792 B.
The step needs less: 8,192 + 2,048, shards 2,048, the gathered weight 4,096, its own new rows 1,024: 17,408 B.
If both full gradients are kept until they are summed, as stage 1 allows, it is 4,096 more: 21,888 B.

Two reduce-scatters and two gathers are 4 collectives, so weights are not cut into columns.
""",
    statement="""\
Data parallel training of `relu(x @ w0) @ w1` with momentum, as in ZeRO1. But backward and step are now two
calls, as with a real optimizer, so gradients are stored between them. In stage 1 these are full gradients,
8,192 B. Now a device keeps only the part that matches its state: its quarter of the rows of each gradient.

`backward` returns your shards of both summed gradients, and keeps them for the step. `step(rate)` updates:
`state = momentum * state + grad`, `weight = weight - rate * state`. It returns the dictionary of updated
weights, in full, on every device. Afterwards the gradient shards are freed.

The peak leaves room for one layer's full gradient in addition to the shards. Scatter it before you compute the
next one. Other sizes and another number of devices are also tried.

`params` holds 'layer_0/weights' (16, 64) and 'layer_1/weights' (64, 16). Gradients and updated weights have the same
names.
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
        """Copy the weights out of params: it is valid only during this call."""
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
        "Backward computes the gradient of w1 first. Does it have to wait for the gradient of w0?",
        (
            "A value lives as long as a name refers to it. An expression passed straight to "
            "`self.reduce_scatter(...)` has no name: only the shard remains."
        ),
        (
            "`self.shards['layer_1/weights'] = self.reduce_scatter(relu(z).T @ grads)` comes before `dz`; then do the "
            "same for the other layer. Return `self.shards`, and let `step` take them out with `self.shards.pop(name)`."
        ),
    ),
    concept="""\
A full gradient is needed only briefly, from when backward has computed it until it is summed. If each device
then keeps only the rows that it will update, gradients also take 1/N of the memory, and no extra bytes are
sent.
""",
    in_practice="""\
This is stage 2 of ZeRO (Rajbhandari et al. 2020). DeepSpeed reduces gradients in buckets while backward runs,
so a bucket plays the role of our layer. With gradient accumulation, every microbatch has to be scattered, and
sent, again. Stage 1 sums full gradients locally and sends them once, so there it may be faster.
""",
    sources=(ZERO,),
)
