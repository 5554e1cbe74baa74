"""GPipeRemat: GPipe with rematerialization of activations."""

from puzzles.catalog.engine.puzzle import EnginePuzzle
from puzzles.catalog.engine_papers import TORCHGPIPE
from puzzles.catalog.papers import CHECKPOINTING, GPIPE

PUZZLE = EnginePuzzle(
    slug="GPipeRemat",
    title="Keep the inputs, recompute the rest",
    targets={
        "sent": 1_088,
        "messages": 8,
        "collectives": 0,
        "flops": 65_536,
        "weights": 8_192,
        "stored": 896,
        "clock": 102_400,
    },
    arithmetic="""\
An activation of a microbatch, 2 x 16 numbers, is a = 128 B. A device in the middle sends 4 of them forward and 4
gradients back in 8 messages, each with 8 B for its second dimension: 8 x 136 = 1,088 B. Its four weights and their
gradient buffers are 2 x 4 x 1,024 = 8,192 B.

"Stored" is what a device holds while it waits in a receive, beyond these 8,192 B. It excludes what has just
arrived and what exists only inside a product. Backward needs the inputs of all layers. A device that keeps them
all holds, when forward ends, 4 microbatches x 4 layers x a = 2,048 B. One that keeps only the stage's inputs holds
4 a = 512 B. While the first gradient is on its way, it recomputes the inputs of the other three layers for one
microbatch, 3 a = 384 B: 896 B. For every further microbatch, one input less is kept: 3 a + 3 a, and so on. The
last device waits only in forward, with 3 inputs and 3 outputs, 768 B.

A layer takes 2 x 2 x 16 x 16 = 1,024 flops per microbatch, so a stage takes F = 4,096 forward and 2F backward:
4 x 3F = 49,152 in all. With a second forward it is 4 x 4F = 65,536, 4/3 as much. (Two parts of it can be left out: the
last layer, whose output is not needed again, and the last microbatch, whose backward comes first, so that its inputs
can stay. Without both it is 58,368.)

Clock: the last device gets its first input after 3F, and finishes forward after 3F + 4F = 7F. Then it recomputes each
microbatch and computes its backward, 4 x 3F: 19F. The other three devices have finished recomputing when the gradient
arrives, and add 2F each: 25F = 102,400. If they wait first and recompute then, they add 3F each: 28F = 114,688. With
everything stored it would be 7F + 4 x 2F + 3 x 2F = 21F = 86,016.
""",
    statement="""\
Sixteen layers `x = relu(x) @ w`, 'layer_0/weights' to 'layer_15/weights', (16, 16) each, on four devices:
device i is a stage of four layers, 4 i to 4 i + 3. The batch of 8 rows is cut into four microbatches of 2, so
that stages can work on different ones at the same time. The order in which a device sends, receives and computes
is up to you.

`forward` gets the batch, (8, 16), on the first device, and None on the others. The last device returns the
output of the full batch, the others None. `backward` gets the output's gradient, (8, 16), on the last
device, and None on the others. Each device returns a dictionary with the gradients of its four weights, summed
over the batch. The gradient of x is not needed.

Memory is short. Allocate room for the gradients in `__init__`, along with the weights. In addition to these, a device
may hold 896 B whenever it waits in `receive`. The inputs of all its layers, for all microbatches, take 2,048 B. So a
stage may compute forward twice. The clock counts too: recompute while you would otherwise wait for a gradient.

Other numbers of layers, devices and microbatches are also tried.
""",
    starter='''\
class GPipeRemat(ShardedEngine):
    """Keep the inputs, recompute the rest."""

    def __init__(self, model_dim, layers, microbatches):
        """Make room for your stage's weights, and for their gradients."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    def load_checkpoint(self, params):
        """Copy your stage's layers out of params."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    def forward(self, x):
        """x: (8, 16) on the first device, else None. Returns (8, 16) on the last device, else None."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    def backward(self, grads):
        """grads: (8, 16) on the last device, else None. Returns your gradients, summed over the batch."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----
''',
    hints=(
        (
            "Write a method that computes a stage: from its input to the inputs of all its layers and the output. "
            "Forward needs the output, backward needs the inputs. What do you have to keep between the two?"
        ),
        (
            "Keep the stage's input of each microbatch. Backward takes the last microbatch first, recomputes its "
            "inputs, and then waits for the gradient: this way the device recomputes while it would be idle anyway."
        ),
        (
            "Do you hold 128 or 256 B too much? Then a variable of one microbatch still exists while you wait for the "
            "next one. Let a method compute the backward of one microbatch: its local variables are freed when it "
            "returns. Don't assign the recomputed output to a name."
        ),
        (
            "`for _ in range(microbatches): inputs = self.stage(self.kept.pop())[0]; self.through(inputs, "
            "self.receive(self.device_id + 1))`; in `through`, from the last layer to the first: `x = inputs.pop(); "
            "weight_grad += relu(x).T @ grads; grads = (grads @ weight.T) * (x > 0)`, and at the end `self.send("
            "self.device_id - 1, grads)`."
        ),
    ),
    concept="""\
A pipeline keeps every microbatch's activations from its forward to its backward, so the more microbatches are in
flight, the more it stores. Rematerialization keeps only the inputs of the stage, and recomputes the rest for one
microbatch at a time. For M microbatches and L layers per stage, that is M + L - 1 arrays instead of M x L, for a third
more flops.
""",
    in_practice="""\
GPipe (Huang et al. 2019) does this in every stage. On a single device the idea is known as checkpointing (Chen et
al. 2016). torchgpipe starts to recompute before the gradient arrives, so that it happens in the bubble (Kim et
al. 2020). 1F1B schedules start backward early instead, so that fewer microbatches are in flight.
""",
    sources=(GPIPE, CHECKPOINTING, TORCHGPIPE),
)
