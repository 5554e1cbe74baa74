"""HostCache: weights on disks, and hosts that can cache half of them."""

from puzzles.catalog.engine.puzzle import EnginePuzzle
from puzzles.catalog.engine_papers import BELADY, ZERO_INFERENCE
from puzzles.catalog.papers import FLEXGEN, ZERO_INFINITY

PUZZLE = EnginePuzzle(
    slug="HostCache",
    title="Weights on disks, and hosts with room for half of them",
    targets={
        "disk_read": 4_096,
        "host_peak": 1_024,
        "host_loaded": 0,
        "sent": 18_432,
        "collectives": 24,
        "weights": 0,
        "peak": 1_664,
    },
    arithmetic="""\
A shard is 256 B, and the host has room for 4 of 8. The first pass reads all from the disk, 8 x 256 = 2,048 B. Between
passes only the host can keep shards, 4 of them, because the device has no room. So each later pass must read at least
4: 2 x 4 x 256 = 2,048 B, together 4,096 B. A cache of the latest four reads all 8 in each pass: 3 x 2,048 = 6,144 B.

The bytes sent are 3 passes of 8 x 3 x 256 B, 18,432 B in 24 collectives. On the device: a layer, a shard and
three activations as in Stream, 1,024 + 256 + 3 x 128 = 1,664 B.
""",
    statement="""\
The eight layers of Stream are now on disks: `load_checkpoint` puts your shards on `self.disk`, which has the same
methods as `self.host`, and nothing on the host. `forward` is called three times, for three batches; each batch goes
through all the layers.

Your host may never hold more than `host_bytes` bytes: 1,024, four of the eight shards. A shard that the host holds need
not be read from the disk again. Use `name in self.host`, `len(self.host)` and `self.host.drop(name)` to manage the
host, and choose the shards that it keeps. Other trials have other numbers of layers and other hosts.

`params` holds 'layer_0/weights' to 'layer_7/weights', (16, 16) each.
""",
    starter='''\
class HostCache(ShardedEngine):
    """Weights on disks, and hosts with room for half of them."""

    def __init__(self, layers, model_dim, host_bytes):
        """Keep what you need to know."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    def load_checkpoint(self, params):
        """Put your shards on your disk."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    def forward(self, x):
        """x: your rows, (2, 16). Returns (2, 16)."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    def backward(self, grads):
        """Not called."""
''',
    hints=(
        "Of all shards that you could drop, which is needed last? In a cycle of layers, it is the one just used.",
        (
            "Suppose a full cache drops the least recently used shard. When the second pass needs layer 0, it holds 4 "
            "to 7. What does it hold when the pass needs layer 4?"
        ),
        (
            "Keep the first shards, and never drop any: `if name in self.host: return self.host.fetch(name)`; "
            "otherwise fetch it from `self.disk`, and put it on the host while `len(self.host) < self.fits`."
        ),
    ),
    concept="""\
An LRU cache works well if the near past predicts the near future. But layers are used in a cycle, so the one just used
is needed last. The optimal strategy drops the item whose next use is farthest away (Belady 1966). In a cycle that
means: keep what you have, and don't cache the rest.
""",
    in_practice="""\
FlexGen (Sheng et al. 2023) decides once which share of the weights stays on the GPU, on the host and on the disk, and
uses no cache. ZeRO-Inference (DeepSpeed, 2022) and ZeRO-Infinity (Rajbhandari et al. 2021) read from NVMe what does not
fit on the host. A memory-mapped file leaves the choice to the system's page cache, which mostly keeps the most recently
used pages. A model slightly larger than the host's memory is then read completely in every pass.
""",
    sources=(BELADY, FLEXGEN, ZERO_INFERENCE, ZERO_INFINITY),
)
