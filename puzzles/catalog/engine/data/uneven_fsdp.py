"""UnevenFSDP: padded flat shards of layers whose sizes the number of devices does not divide."""

from puzzles.catalog.engine.puzzle import EnginePuzzle
from puzzles.catalog.papers import PYTORCH_FSDP

PUZZLE = EnginePuzzle(
    slug="UnevenFSDP",
    title="Shards of what cannot be divided",
    targets={"sent": 42_852, "flops": 46_080, "collectives": 12, "weights": 2_388, "peak": 16_004},
    arithmetic="""\
The first layer has 18 x 64 + 64 = 1,216 numbers, 4 x 304. The second has 64 x 18 + 18 = 1,170: two zeros
make it 1,172 = 4 x 293. (Without the biases both would have 1,152, which 4 divides: 18 cannot be cut, but a
flat row can.) A device keeps 4 x (304 + 293) = 2,388 B.

A gather sends 3 shards, and so does the reduce-scatter of a gradient: 3 x 1,216 = 3,648 B for the first
layer, 3 x 1,172 = 3,516 B for the second. In a step the first is gathered once, the second twice, both
gradients are scattered: 2 x 3,648 + 3 x 3,516 = 17,844 B in 5 calls. Two steps, and both layers once more
for `save`: 2 x 17,844 + 7,164 = 42,852 B in 12 calls. With the first weight in rows, 18 padded to 20, it
would be 5 x 64 numbers for each device, and a call more for each bias.

A product is 2 x 2 x 18 x 64 = 4,608 flops, two forward and three backward: 23,040 in a step.

Peak, when the first layer's gradient is scattered: shards 2,388, the gradient 4,608 + 256, the same in a
row 4,864, its shard 1,216, z and dz 512 each, and x, grads and the output 144 each: 14,788 B. The target
leaves room for one more shard, where a step is made: 16,004 B; another whole weight, 4,608 B, does not fit.
""",
    statement="""\
FSDP for `relu(x @ w0 + b0) @ w1 + b1`, trained for two steps. model_dim is 18, and 4 does not divide it:
`params` has 'layer_0/weights' (18, 64), 'layer_0/bias' (64,), 'layer_1/weights' (64, 18), 'layer_1/bias'
(18,).

So a layer is kept as one flat row: its weights row by row, then its bias, then as many zeros as it takes
until the number of devices divides its length. Device i keeps the i-th part of each row: its flat shards.
The zeros at the end are padding. They belong to no weight, so they stay 0, and nobody may take them for
one.

`forward` returns your rows' output. `backward` makes a step, `weight = weight - rate * grad` with the
gradient of the whole batch, and returns your updated shards: {'layer_0': (304,), 'layer_1': (293,)}.
`save(layers)` gets a list of layers, and returns their whole parameters under the names and in the shapes
of `params`: what was trained on 4 devices must load on 3. Nobody asks for the gradient of x.

Other sizes and numbers of devices are tried as well, among them one where some devices have only padding.
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
        """Copy your flat shards out of params; what you keep views of, you keep whole."""
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
            "`-size % n` is how many zeros are missing. They belong at the end of the row, not of each shard: "
            "`np.array_split` and `np.resize` both put something else somewhere."
        ),
        (
            "A gradient is made flat in the same way, so that `self.reduce_scatter` gives you just the numbers that "
            "your shard needs: weights and bias in one call."
        ),
        (
            "`flat = np.concatenate([weights.ravel(), bias, np.zeros(-size % n, dtype=np.float32)])`, and back: "
            "`weights, bias, _ = np.split(self.all_gather(shard), [rows * columns, rows * columns + columns])`. A step "
            "is `shard -= rate * self.reduce_scatter(flat)`."
        ),
    ),
    concept="""\
Collectives want equal parts, models do not have them. A flat row with a few zeros can be cut by any number
of devices. Zeros stay zeros: their gradient is 0, so neither a step nor momentum nor weight decay moves
them, and a norm does not see them. Any other padding would be trained along, and counted.
""",
    in_practice="""\
PyTorch's FSDP flattens the parameters of a unit into one FlatParameter, pads it, and cuts it (Zhao et al.
2023). Its successor, FSDP2, keeps every parameter by itself and cuts it by rows. Checkpoints are saved
without padding, so that another number of devices can load them.
""",
    sources=(PYTORCH_FSDP,),
)
