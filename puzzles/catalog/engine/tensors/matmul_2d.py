"""Matmul2D: a matmul split along both axes of a mesh."""

from puzzles.catalog.engine.puzzle import EnginePuzzle
from puzzles.catalog.papers import GSPMD, MESH_TENSORFLOW

PUZZLE = EnginePuzzle(
    slug="Matmul2D",
    title="A mesh: which axis does the sum go along?",
    targets={"sent": 1_536, "flops": 6_144, "weights": 1_024},
    arithmetic="""\
A device's product is (4, 8) @ (8, 32): 2 x 4 x 8 x 32 = 2,048 flops, and with two more like it in backward
6,144. Its result is a part of a sum along y, 4 x 32 x 4 = 512 B. All-reduced along y (2 devices) that sends
2 x 1/2 x 512 = 512 B, and both hold the same; reduce-scattered 1/2 x 512 = 256 B. Gathering x and the weight
along y first would send 128 + 1,024 = 1,152 B, for twice the flops.

Backward gathers 256 B of the output's gradient along y, which sends 256 B, and sums the weight's gradient,
1,024 B, along x: 2 x 1/2 x 1,024 = 1,024 B. Together 256 + 256 + 1,024 = 1,536 B. The weight is 8 x 32 x 4 =
1,024 B.
""",
    statement="""\
Four devices form a mesh of 2 x 2: with `mesh` (2, 2), device 2 i + j stands at place i along x and j along y.
The model is one product, `x @ w`, x (8, 16), w (16, 32).

x is cut both ways: its rows along x, its columns along y, so you get (4, 8), rows block i, columns block j.
The rows of w, params['weights'], are cut along y: you hold block j, (8, 32); devices with the same j hold the
same. The output is cut as x is: `forward` returns rows block i, columns block j, (4, 16).

`backward` gets the gradient of your output block. It returns under 'weights' the gradient of your block of w,
from the whole batch, and under 'x' the gradient of your block of x. Collectives take `group`, the devices
that make the call together. Other meshes are tried too: with (a, b), device b i + j stands at (i, j).
""",
    starter='''\
class Matmul2D(ShardedEngine):
    """A mesh: which axis does the sum go along?"""

    def __init__(self, model_dim, hidden_dim, mesh):
        """mesh: how many devices along x, and along y. Find your place, your neighbours; make room for your block."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    def load_checkpoint(self, params):
        """Copy your rows out of params['weights']."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    def forward(self, x):
        """x: your block, (4, 8). Returns your block of the output, (4, 16)."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    def backward(self, grads):
        """grads: (4, 16). Returns the gradients of 'weights', (8, 32), and of 'x', (4, 8)."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----
''',
    hints=(
        "Multiply what you have. Over what does the sum in that product run, and who has the rest of it?",
        (
            "The contraction is cut along y, so outputs are summed along y. The batch is cut along x, so what is "
            "summed over the batch is summed along x."
        ),
        (
            "With `i, j = divmod(self.device_id, b)`, your neighbours along y are the devices `i * b + k` for all k: "
            "a list for `group`. You need only a part of the output's columns: which collective gives a sum in parts?"
        ),
        (
            "forward: `self.reduce_scatter(x @ self.w, axis=1, group=along_y)`. backward: `grads = "
            "self.all_gather(grads, axis=1, group=along_y)`, then `self.all_reduce(x.T @ grads, group=along_x)` and "
            "`grads @ self.w.T`, which needs no sum."
        ),
    ),
    concept="""\
Each axis of the mesh cuts one index. An index that an operand has and the result has not is summed over, and
the sum goes along the axis that cuts it: here that is tensor parallelism along y and data parallelism along
x, in one product.
""",
    in_practice="""\
Mesh-TensorFlow (Shazeer et al. 2018) and GSPMD (Xu et al. 2021) write layouts like this, one mesh axis for each
dimension of a tensor, and put in the collectives by themselves. Large runs give the axis that sends most the
fastest links.
""",
    sources=(MESH_TENSORFLOW, GSPMD),
)
