"""UnevenFSDP: padded flat shards of layers whose sizes are not divisible by the number of devices."""

from puzzles.catalog.engine.puzzle import EnginePuzzle
from puzzles.catalog.papers import PYTORCH_FSDP

PUZZLE = EnginePuzzle(
    slug="UnevenFSDP",
    title="Sharding what does not divide evenly",
    targets={"sent": 42_852, "flops": 46_080, "collectives": 12, "weights": 2_388, "peak": 16_004},
    arithmetic="""\
The first layer has 18 x 64 + 64 = 1,216 numbers, 4 x 304. The second has 64 x 18 + 18 = 1,170; two zeros
make it 1,172 = 4 x 293. (Without the biases both would have 1,152, which is divisible by 4: the 18 rows are
not, but a flat row is.) A device keeps 4 x (304 + 293) = 2,388 B.

A gather sends 3 shards, and so does the reduce-scatter of a gradient: 3 x 1,216 = 3,648 B for the first
layer, 3 x 1,172 = 3,516 B for the second. In a step, the first layer is gathered once, the second twice, and
both gradients are scattered: 2 x 3,648 + 3 x 3,516 = 17,844 B in 5 calls. With two steps, and both layers once
more for `save`: 2 x 17,844 + 7,164 = 42,852 B in 12 calls. If the first weight were sharded by rows, with 18
padded to 20, it would take 5 x 64 numbers per device, and an extra call for each bias.

A product is 2 x 2 x 18 x 64 = 4,608 flops, two forward and three backward: 23,040 per step.

Memory peaks when the first layer's gradient is scattered: shards 2,388, the gradient 4,608 + 256, the same in
a row 4,864, its shard 1,216, z and dz 512 each, and x, grads and the output 144 each: 14,788 B. The target
leaves room for one more shard, for the update: 16,004 B. Another full weight, 4,608 B, does not fit.
""",
    statement="""\
FSDP for `relu(x @ w0 + b0) @ w1 + b1`, trained for two steps. model_dim is 18, which is not divisible by 4:
`params` holds 'layer_0/weights' (18, 64), 'layer_0/bias' (64,), 'layer_1/weights' (64, 18), 'layer_1/bias'
(18,).

So each layer is stored as one flat row: its weights row by row, then its bias, then as many zeros as needed to
make its length divisible by the number of devices. Device i keeps the i-th part of each row, its flat shards.
The zeros at the end are padding. They belong to no weight, so they must stay 0 and must not be used as weights.

`forward` returns your rows' output. `backward` makes a step, `weight = weight - rate * grad` with the
gradient of the full batch, and returns your updated shards: {'layer_0': (304,), 'layer_1': (293,)}.
`save(layers)` gets a list of layers and returns their full parameters, with the names and shapes of `params`,
so that a model trained on 4 devices can be loaded on 3. The gradient of x is not needed.

Other sizes and numbers of devices are also tried, including one where some devices hold only padding.
""",
    starter='''\
class UnevenFSDP(ShardedEngine):
    """Shards of what cannot be divided."""

    def __init__(self, model_dim, hidden_dim, rate):
        """Remember what you need to know of the sizes."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    def load_checkpoint(self, params):
        """Copy your flat shards out of params: a view would keep the full array."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    def forward(self, x):
        """x: your rows, (2, 18). Returns (2, 18)."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    def backward(self, grads):
        """grads: (2, 18). Makes a step; returns your updated shards."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    def save(self, layers):
        """layers: a list of names, ['layer_0', 'layer_1']. Returns the whole parameters of these."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----
''',
    hints=(
        "Write two functions that undo each other: from weights and bias to a flat row, and from a row back to both.",
        (
            "`-size % n` is the number of missing zeros. They belong at the end of the row, not of each shard. "
            "`np.array_split` and `np.resize` do something different."
        ),
        (
            "Flatten the gradient in the same way, so that `self.reduce_scatter` gives you exactly the numbers for "
            "your shard: weights and bias in one call."
        ),
        (
            "`flat = np.concatenate([weights.ravel(), bias, np.zeros(-size % n, dtype=np.float32)])`, and back: "
            "`weights, bias, _ = np.split(self.all_gather(shard), [rows * columns, rows * columns + columns])`. A step "
            "is `shard -= rate * self.reduce_scatter(flat)`."
        ),
    ),
    concept="""\
Collectives need equal parts, but models don't have them. A flat row with a few zeros can be cut for any number
of devices. The zeros stay zero: their gradient is 0, so a step, momentum or weight decay does not change them,
and they do not affect a norm. Any other padding would be trained and counted too.
""",
    in_practice="""\
PyTorch's FSDP flattens the parameters of a unit into one FlatParameter, pads it, and cuts it (Zhao et al.
2023). Its successor, FSDP2, keeps every parameter separate and cuts it by rows. Checkpoints are saved without
padding, so that a different number of devices can load them.
""",
    sources=(PYTORCH_FSDP,),
)
