"""Stream: weights on the hosts, gathered to the devices one layer at a time."""

from puzzles.catalog.engine.puzzle import EnginePuzzle
from puzzles.catalog.papers import ZERO_INFERENCE, ZERO_INFINITY

PUZZLE = EnginePuzzle(
    slug="Stream",
    title="Weights on the hosts, one layer at a time",
    targets={"host_read": 2_048, "disk_read": 0, "sent": 6_144, "weights": 0, "peak": 1_664},
    arithmetic="""\
A layer has 16 x 16 numbers, 1,024 B, a shard of it 256 B. From the host come 8 shards, 8 x 256 = 2,048 B; to
gather one is 3 x 256 B to send, 8 x 768 = 6,144 B in all. On the device there are at most a layer and a shard,
1,280 B, and three activations of 2 x 16 numbers, 3 x 128 B: 1,664 B. All eight layers would be 8,192 B.
""",
    statement="""\
Eight layers `x = relu(x @ w)`, parameters 'layer_0/weights' to 'layer_7/weights', (16, 16) each, are too many
for a device. After loading nothing of them is on the devices: each has its shard (a quarter of the rows) of
every layer on its host.

`self.host` keeps arrays by name: `self.host.put(name, array)` writes a copy there, `self.host.fetch(name)`
reads one back to the device. `forward` gets two rows of the batch on each device, (2, 16), and returns their
outputs. Every byte comes from a host once: a device fetches its own shard, and the devices give the shards to
each other. There is never more than one layer and one shard on a device.
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
        "What FSDP gathers from the devices' memories is here on their hosts first. What else changes in forward?",
        (
            "A name keeps an array alive. If `w` is the layer of before, it is still there while the next one is "
            "gathered: two layers. `del w` after its last use, or give it no name."
        ),
        (
            "`self.host.put(name, np.split(params[name], self.num_devices)[self.device_id])` for each layer; then "
            "`x = relu(x @ self.all_gather(self.host.fetch(name)))`."
        ),
    ),
    concept="""\
The model does not have to fit on the devices, only a layer of it. Whole layers on every host would come over
every device's own link to its host, four times the bytes; with shards all links work at once on the same layer,
and the devices' faster network does the rest.
""",
    in_practice="""\
ZeRO-Inference (DeepSpeed, 2022) keeps the weights in the memory of the host, or on NVMe, and brings a layer at a
time to the GPUs; with several of them each fetches a part, so that their PCIe links add up. What the GPU's memory
is freed of goes to larger batches, which make each fetched layer do more work.
""",
    sources=(ZERO_INFERENCE, ZERO_INFINITY),
)
