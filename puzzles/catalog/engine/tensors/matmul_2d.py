"""Matmul2D: a matmul split along both axes of a mesh."""

from puzzles.catalog.engine.puzzle import EnginePuzzle
from puzzles.catalog.engine_papers import MESH_TENSORFLOW
from puzzles.catalog.papers import GSPMD

PUZZLE = EnginePuzzle(
    slug="Matmul2D",
    title="A mesh: along which axis do you sum?",
    targets={"sent": 1_536, "flops": 6_144, "weights": 1_024},
    arithmetic="""\
A device's product is (4, 8) @ (8, 32): 2 x 4 x 8 x 32 = 2,048 flops, and with two more like it in backward
6,144. Its result is one part of a sum along y, 4 x 32 x 4 = 512 B. An all-reduce along y (2 devices) sends
2 x 1/2 x 512 = 512 B, and both devices hold the same; a reduce-scatter sends 1/2 x 512 = 256 B. Gathering x and the
weight along y first would send 128 + 1,024 = 1,152 B, for twice the flops.

Backward gathers 256 B of the output's gradient along y, which sends 256 B, and sums the weight's gradient,
1,024 B, along x: 2 x 1/2 x 1,024 = 1,024 B. Together 256 + 256 + 1,024 = 1,536 B. The weight is 8 x 32 x 4 =
1,024 B.
""",
    statement="""\
Four devices form a mesh of 2 x 2: with `mesh` (2, 2), device 2 i + j has position i along x and j along y.
The model is one product, `x @ w`, with x (8, 16) and w (16, 32).

x is cut both ways, its rows along x and its columns along y, so you get (4, 8): row block i, column block j.
The rows of w, params['weights'], are cut along y: you hold block j, (8, 32). Devices with the same j hold the
same block. The output is cut like x: `forward` returns row block i, column block j, (4, 16).

`backward` gets the gradient of your output block. It returns, under 'weights', the gradient of your block of w for
the full batch, and under 'x' the gradient of your block of x. Collectives take `group`, the devices that make the
call together. Other meshes are also tried: with (a, b), device b i + j is at (i, j).
""",
    starter='''\
class Matmul2D(ShardedEngine):
    """One product on a mesh of two axes."""

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
        "Multiply what you have. What does the sum in that product run over, and which devices have the rest of it?",
        (
            "The contraction is cut along y, so outputs are summed along y. The batch is cut along x, so sums over the "
            "batch run along x."
        ),
        (
            "With `i, j = divmod(self.device_id, b)`, your neighbors along y are the devices `i * b + k` for all k: "
            "a list for `group`. You need only a part of the output's columns: which collective gives a sum in parts?"
        ),
        (
            "forward: `self.reduce_scatter(x @ self.w, axis=1, group=along_y)`. backward: `grads = "
            "self.all_gather(grads, axis=1, group=along_y)`, then `self.all_reduce(x.T @ grads, group=along_x)` and "
            "`grads @ self.w.T`, which needs no sum."
        ),
    ),
    concept="""\
Each axis of the mesh cuts one index. An index that an operand has but the result does not is summed over, and the
sum runs along the axis that cuts the index. Here that is tensor parallelism along y and data parallelism along x,
in one product.
""",
    in_practice="""\
Mesh-TensorFlow (Shazeer et al. 2018) and GSPMD (Xu et al. 2021) describe layouts like this, with one mesh axis per
dimension of a tensor, and insert the collectives automatically. Large runs give the fastest links to the axis that
sends the most.
""",
    sources=(MESH_TENSORFLOW, GSPMD),
)
