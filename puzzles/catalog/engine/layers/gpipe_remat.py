"""GPipeRemat: GPipe with rematerialization of activations."""

from puzzles.catalog.engine.puzzle import EnginePuzzle
from puzzles.catalog.papers import CHECKPOINTING, GPIPE, TORCHGPIPE

PUZZLE = EnginePuzzle(
    slug="GPipeRemat",
    title="Keep what came in, make the rest again",
    targets={
        "sent": 1_024,
        "messages": 8,
        "collectives": 0,
        "flops": 65_536,
        "weights": 8_192,
        "stored": 896,
        "clock": 102_400,
    },
    arithmetic="""\
An activation of a microbatch, 2 x 16 numbers, is a = 128 B. A device between two others sends 4 of them
forward and 4 gradients back: 8 x 128 = 1,024 B in 8 messages. Its four weights, and room for their
gradients, are 2 x 4 x 1,024 = 8,192 B.

Stored is what a device has at hand while it waits in a receive, over these 8,192 B. What has just come does
not count, and neither does what lives only inside a product. Backward needs the inputs of all layers. Who
keeps them has, when forward ends, 4 microbatches x 4 layers x a = 2,048 B. Who keeps the stage's input only
has 4 a = 512 B; while the first gradient is on its way, the inputs of the other three layers are made again
for one microbatch, 3 a = 384 B: 896 B. For every further microbatch one input less is kept: 3 a + 3 a, and
so on. The last device waits only forward, with 3 inputs and 3 outputs, 768 B.

A layer takes 2 x 2 x 16 x 16 = 1,024 flops for a microbatch, so a stage F = 4,096 forward and 2F backward:
4 x 3F = 49,152 in all. Once more forward makes it 4 x 4F = 65,536, 4/3. (The last layer's output is not
needed again: leaving it out makes 61,440, 5/4, and is better than the target.)

Clock: the last device has its first input after 3F, and is done forward after 3F + 4F = 7F. Then it makes
each microbatch again and takes it back, 4 x 3F: 19F. The other three devices have made theirs again by the
time the gradient comes, and add 2F each: 25F = 102,400. If they wait first and make it then, they add 3F
each: 28F = 114,688. With everything stored it would be 7F + 4 x 2F + 3 x 2F = 21F = 86,016.
""",
    statement="""\
Sixteen layers `x = relu(x) @ w`, 'layer_0/weights' to 'layer_15/weights', (16, 16) each, on four devices:
device i is a stage of four layers, 4 i to 4 i + 3. The batch of 8 rows is cut into four microbatches of 2,
so that stages work at the same time on different ones. In which order a device sends, receives and computes
is up to you.

`forward` gets the batch, (8, 16), on the first device, and None on the others; the last one returns the
output of the whole batch, the others None. `backward` gets the output's gradient, (8, 16), on the last
device, and None on the others. Each returns a dictionary with the gradients of its four weights, summed
over the batch. Nobody asks for the gradient of x.

The catch is memory. Make room for the gradients in `__init__`, beside the weights. Over these, whenever a
device waits in `receive`, it may have 896 B at hand: that is not enough for all layers' inputs of all
microbatches, 2,048 B. Each stage may go forward twice. And the clock counts: a device that waits could be
making something again.

Other numbers of layers, devices and microbatches are tried as well.
""",
    starter='''\
class GPipeRemat(ShardedEngine):
    """Keep what came in, make the rest again."""

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
            "Begin with a stage as a function: from its input to the inputs of all its layers and the output. Forward "
            "needs the output, backward needs the inputs. What has to be kept between the two?"
        ),
        (
            "Keep the stage's input of each microbatch. Backward takes the last microbatch first, makes its inputs "
            "again, and then waits for the gradient: in this order the work is done while there is nothing else to do."
        ),
        (
            "128 or 256 B too much? A variable of the last microbatch is still there while you wait for the next one: "
            "let a method take one microbatch back, then its names go when it returns. The output that was made again "
            "should not have a name at all."
        ),
        (
            "`for _ in range(microbatches): inputs = self.stage(self.kept.pop())[0]; self.through(inputs, "
            "self.receive(self.device_id + 1))`; in `through`, from the last layer to the first: `x = inputs.pop(); "
            "weight_grad += relu(x).T @ grads; grads = (grads @ weight.T) * (x > 0)`, and at the end `self.send("
            "self.device_id - 1, grads)`."
        ),
    ),
    concept="""\
A pipeline keeps every microbatch's activations from its way forward until its way back, so the better it is
filled, the more it stores. Rematerialization keeps what crosses the boundary, and makes the rest again for
the one microbatch whose turn it is: M + L - 1 arrays instead of M x L, for M microbatches and L layers in a
stage, at a third more flops.
""",
    in_practice="""\
GPipe (Huang et al. 2019) does this in every stage; the idea for single devices is that of checkpoints (Chen
et al. 2016). torchgpipe starts the recomputation before the gradient arrives, so that it takes place in the
bubble (Kim et al. 2020). 1F1B schedules begin the way back early instead, so that fewer microbatches are on
the way.
""",
    sources=(GPIPE, CHECKPOINTING, TORCHGPIPE),
)
