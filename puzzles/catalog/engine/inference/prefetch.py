"""Prefetch: fetch the next layer while this one computes."""

from puzzles.catalog.engine.puzzle import EnginePuzzle
from puzzles.catalog.engine_papers import ZERO_INFERENCE

PUZZLE = EnginePuzzle(
    slug="Prefetch",
    title="Fetch the next layer while this one computes",
    targets={"elapsed": 18_432, "sent": 6_144, "collectives": 8, "weights": 0, "peak": 2_816},
    arithmetic="""\
Fetching a shard of 256 B takes f = 256 x 8 = 2,048 flops of time, a layer's product c = 2 x 4 x 16 x 16 = 2,048. One
after the other, 8 layers take 8 (f + c) = 32,768. With one fetch ahead, only the first fetch and the last product
overlap with nothing: f + 7 max(f, c) + c = 9 x 2,048 = 18,432. In units of 512 flops f is 4. With 1, 2, 4 and 8 rows on
each device c is 1, 2, 4 and 8, and the time is 33, 34, 36 and 68 units instead of 40, 48, 64 and 96. All four are
tried.

Memory: two layers, 2 x 1,024 B, and three activations of 4 x 16 numbers, 3 x 256 B: 2,816 B. A layer and two shards,
1,536 B, are enough for the weights. All shards together, 2,048 B, and a full layer are too much.

A gather for each layer makes 8 collectives.
""",
    statement="""\
This is Stream with four rows on each device, but now the time of `forward` counts. It is measured in flops: a byte from
the host takes 8, products take their flops, and nothing else takes time. A link carries one array at a time, in
the order of the requests; `self.host.fetch(name)` waits for it.

`coming = self.host.fetch_async(name)` only starts the fetch. The array is transferred while the device computes, and
`coming.wait()` returns it, waiting if necessary. It takes up memory from the moment of the request: there is room for
at most two layers.

Other trials have 1, 2 and 8 rows, other layers, and another link. If a fetch takes f and a layer's product c, L layers
must not take longer than f + (L-1) max(f, c) + c.

`params` holds 'layer_0/weights' to 'layer_7/weights', (16, 16) each.
""",
    starter='''\
class Prefetch(ShardedEngine):
    """The next layer is fetched while this one computes."""

    def __init__(self, layers, model_dim):
        """Keep what you need to know."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    def load_checkpoint(self, params):
        """Put your shards on your host."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    def forward(self, x):
        """x: your rows, (4, 16). Returns (4, 16)."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    def backward(self, grads):
        """Not called."""
''',
    hints=(
        "When is the link idle in your Stream, and when is the device?",
        "Start the first fetch before the loop. In the loop, when do you know the name of the next shard?",
        (
            "In each round: `shard = coming.wait()`, then `coming = self.host.fetch_async(next_name)` (not in the "
            "last round), and only then `x = relu(x @ self.all_gather(shard))`."
        ),
    ),
    concept="""\
This is double buffering: one buffer is filled while the other is used. The slower of link and device determines the
speed, and hides the other's time. If the link is slower, more rows cost almost nothing: with 4 rows on each device the
batch takes 36 units, with 1 it takes 33. From f = c on, the device is busy all the time.
""",
    in_practice="""\
ZeRO-Inference (DeepSpeed, 2022) prefetches layers over PCIe and relies on large batches: the fetch of a layer is hidden
if its computation takes at least as long. On CUDA the copy runs on its own stream, from pinned memory, and an event
plays the role of `wait()`.
""",
    sources=(ZERO_INFERENCE,),
)
