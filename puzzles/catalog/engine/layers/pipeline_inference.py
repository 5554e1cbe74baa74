"""PipelineInference: one layer per device, and a stream of inputs."""

from puzzles.catalog.engine.puzzle import EnginePuzzle
from puzzles.catalog.papers import GPIPE

PUZZLE = EnginePuzzle(
    slug="PipelineInference",
    title="One layer on each device",
    targets={"sent": 1_632, "messages": 12, "collectives": 0, "weights": 1_024, "clock": 15_360},
    arithmetic="""\
12 inputs of 2 x 16 numbers, 128 B, and 8 B for the second dimension: each boundary sends 12 x 136 = 1,632 B. A layer
takes 2 x 2 x 16 x 16 = 1,024 flops per input. With 4 layers, the last output is ready after 12 + 3 = 15 of these,
15,360 flops, if every device works as soon as its first input arrives. Without overlap it would take 48.
""",
    statement="""\
Four layers `x = relu(x @ w)`, parameters 'layer_0/weights' to 'layer_3/weights', (16, 16) each: device i holds
only layer i. A stream of 12 inputs, (2, 16) each, goes through `inference_loop`, which calls
`forward` on every device for every input and ends when the stream does.

Only the last device returns an output; the others return None. Once the pipeline is full, all devices work
at the same time.
""",
    starter='''\
class PipelineInference(ShardedEngine):
    """One layer on each device."""

    def __init__(self, model_dim):
        """Make room for your layer."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    def load_checkpoint(self, params):
        """Copy your layer out of params."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    def forward(self, x):
        """x: an input, (2, 16); the same on every device. The last device returns the output, the others None."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    def backward(self, grads):
        """Not called."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----
''',
    hints=(
        "Every device reads every input of the stream, but only one of them needs it.",
        "`send` does not wait. A device that has sent an activation can take the next input right away.",
        (
            "`if self.device_id > 0: x = self.receive(self.device_id - 1)`; compute; return the result on the last "
            "device, `self.send(self.device_id + 1, y)` on the others."
        ),
    ),
    concept="""\
A device that holds one layer needs 1/N of the memory, and sends each activation once. The first output takes as
long as on one device; after that, each output takes the time of a single layer.
""",
    in_practice="""\
Inference of models that do not fit on one device is pipelined like this. For training, GPipe (Huang et al. 2019)
does it with microbatches, forward and backward.
""",
    sources=(GPIPE,),
)
