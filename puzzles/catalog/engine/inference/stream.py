"""Stream: weights on the hosts, gathered to the devices one layer at a time."""

from puzzles.catalog.engine.puzzle import EnginePuzzle
from puzzles.catalog.engine_papers import ZERO_INFERENCE
from puzzles.catalog.papers import ZERO_INFINITY

PUZZLE = EnginePuzzle(
    slug="Stream",
    title="Weights on the hosts, one layer at a time",
    targets={"host_read": 2_048, "disk_read": 0, "sent": 6_144, "collectives": 8, "weights": 0, "peak": 1_664},
    arithmetic="""\
A layer has 16 x 16 numbers, 1,024 B, and a shard of it 256 B. A device reads 8 shards from its host, 8 x 256 = 2,048 B.
Gathering a layer sends 3 x 256 = 768 B, and 8 layers 6,144 B, in 8 collectives. A device holds at most a layer and a
shard, 1,280 B, and three activations of 2 x 16 numbers, 3 x 128 B: 1,664 B. All eight layers would be 8,192 B.
""",
    statement="""\
Eight layers `x = relu(x @ w)`, with parameters 'layer_0/weights' to 'layer_7/weights', (16, 16) each, do not fit on a
device. After loading, the devices hold no weights. Each has its shard of every layer, a quarter of the rows, on its
host.

`self.host` stores arrays by name: `self.host.put(name, array)` writes a copy there, `self.host.fetch(name)` reads one
back to the device. `forward` gets two rows of the batch on each device, (2, 16), and returns their outputs. Every byte
is read from a host only once: a device fetches its own shard, and the devices gather the layer from these. A device
never holds more than one layer and one shard.
""",
    starter='''\
class Stream(ShardedEngine):
    """Weights on the hosts, one layer at a time."""

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
        """x: your rows, (2, 16). Returns (2, 16)."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    def backward(self, grads):
        """Not called."""
''',
    hints=(
        "In FSDP, shards are in the devices' memory. Here they are on the hosts. What changes in forward?",
        (
            "A name keeps an array alive. If `w` is the previous layer, it still exists while the next one is "
            "gathered: two layers. `del w` after its last use, or don't assign it to a name."
        ),
        (
            "`self.host.put(name, np.split(params[name], self.num_devices)[self.device_id])` for each layer; then "
            "`x = relu(x @ self.all_gather(self.host.fetch(name)))`."
        ),
    ),
    concept="""\
The model need not fit on the devices, only a single layer of it. If every device fetched full layers from its host,
each link would carry four times the bytes. With shards, the links carry different parts of the same layer at the same
time, and the faster network between the devices gathers them.
""",
    in_practice="""\
ZeRO-Inference (DeepSpeed, 2022) keeps the weights in host memory or on NVMe, and fetches one layer at a time to the
GPUs. With several GPUs, each fetches a part, so their PCIe links add up. The freed GPU memory allows larger batches,
which make each fetched layer do more work.
""",
    sources=(ZERO_INFERENCE, ZERO_INFINITY),
)
