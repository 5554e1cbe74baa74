"""AnnotatedMLP: two layers on a 2 x 2 mesh, with three annotations."""

from puzzles.catalog.engine.puzzle import EnginePuzzle
from puzzles.catalog.papers import GSHARD, GSPMD

PUZZLE = EnginePuzzle(
    slug="AnnotatedMLP",
    title="Two layers on a mesh, with three annotations",
    targets={"sent": 4_096, "flops": 65_536, "weights": 2_048},
    imports=("from lib.layout.spmd import Spmd, mesh, mesh_split, replicate",),
    arithmetic="""\
64 rows, model_dim 16, hidden_dim 64, on a mesh of 2 x 2. A device has 16 rows, 1,024 B, and a quarter of each weight,
1,024 B. With h split as (data, model) it needs the rows of two devices, which is 1,024 B to send, and half of each
weight, 2 x 1,024 B. The result is a partial sum over model, (32, 16), 2,048 B, and to reduce-scatter it takes another
1,024 B: 4,096 B in all.

Gathering the full weights takes 2 x 3 x 1,024 = 6,144 B (FSDP). Splitting only the hidden dimension takes 3 x 1,024 B
to gather the rows, and 3/4 of 4,096 B to reduce-scatter the sum, 6,144 B too (tensor parallel). Flops are a quarter of
2 x 2 x 64 x 16 x 64 = 262,144: 65,536.
""",
    statement="""\
`program` is the model of one device, `relu(x @ w0) @ w1`, written with einsum. `Spmd` traces it, completes your
annotations, and plans what every device computes and what moves; the methods below delegate everything to it.

`mesh_split(tensor, self.mesh, dims)` returns the annotated tensor. For each dimension, dims gives the mesh axis over
which it is split, a tuple of axes, or None. The mesh is 2 x 2, with the axes data and model. `replicate(tensor)` means
that every device has the full tensor. A weight's annotation is where it lives after loading; a tensor that is annotated
again moves. The planner decides everything else. In a product or a sum, matching dimensions are split in the same way;
where splits conflict, the dimension stays unsplit.

The input x and the result are split by rows over all devices: keep these two annotations. Add your own, so that each
device holds a quarter of the weights and as few bytes as possible are sent. `print(self.spmd.explain())` in __init__
shows the planner's result, operator by operator.

`params` holds 'w0' (16, 64) and 'w1' (64, 16).
""",
    starter='''\
class AnnotatedMLP(ShardedEngine):
    """Two layers on a mesh, and three annotations."""

    def __init__(self, batch, model_dim, hidden_dim):
        self.mesh = mesh(data=2, model=2)
        parameters = {"w0": (model_dim, hidden_dim), "w1": (hidden_dim, model_dim)}
        self.spmd = Spmd(self, self.program, {"x": (batch, model_dim)}, parameters, self.mesh)

    def program(self, x, w0, w1):
        """x: the full batch, (64, 16); w0: (16, 64); w1: (64, 16). Annotate them, and h."""
        x = mesh_split(x, self.mesh, (("data", "model"), None))
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----
        h = np.maximum(np.einsum("bd,df->bf", x, w0), 0)
        # ----- your code -----
        # ----- end of your code -----
        y = np.einsum("bf,fd->bd", h, w1)
        return mesh_split(y, self.mesh, (("data", "model"), None))

    def load_checkpoint(self, params):
        """Copies this device's pieces."""
        self.spmd.load_checkpoint(params)

    def forward(self, x):
        """x: this device's rows, (16, 16). Returns (16, 16)."""
        return self.spmd.forward({"x": x})

    def backward(self, grads):
        """Not called."""
''',
    hints=(
        (
            "Where do the weights live? A quarter of each on every device: either both dimensions are split over one "
            "axis each, or one dimension over both axes."
        ),
        (
            "The planner's lines that start with two spaces are what moves. Splitting h decides which device computes "
            "what: with rows over data and columns over model, every device fetches half of everything, and none of it "
            "in full."
        ),
        (
            '`w0 = mesh_split(w0, self.mesh, ("data", "model"))`, w1 the other way round, and between the two products '
            '`h = mesh_split(h, self.mesh, ("data", "model"))`.'
        ),
    ),
    concept="""\
The program says what is computed, the annotations say where, and neither mentions collectives. All-gathers and the
reduce-scatter follow from which device has what and which needs it. Data parallelism, FSDP, tensor parallelism and
everything in between are the same program with different annotations. Here a combination is best, because rows and
weights have the same size.
""",
    in_practice="""\
GShard (Lepikhin et al. 2020) and GSPMD (Xu et al. 2021) do this in the XLA compiler. `jax.jit` with
`with_sharding_constraint` is used like `mesh_split`, and PyTorch has DTensor's `parallelize_module`. Large transformers
on TPUs are split over two axes like this, with a weight's dimensions over both.
""",
    sources=(GSPMD, GSHARD),
)
