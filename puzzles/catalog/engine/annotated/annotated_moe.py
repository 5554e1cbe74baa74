"""AnnotatedMoE: a mixture-of-experts layer with one annotation."""

from puzzles.catalog.engine.puzzle import EnginePuzzle
from puzzles.catalog.papers import GSHARD, GSPMD

PUZZLE = EnginePuzzle(
    slug="AnnotatedMoE",
    title="A layer of experts, and one annotation",
    targets={"sent": 768, "flops": 20_480, "weights": 4_096},
    imports=("from lib.layout.spmd import Spmd, replicate, split",),
    arithmetic="""\
4 groups of 8 tokens, 4 experts with room for 2 tokens of each group, model_dim 16, hidden_dim 32. What a group sends
to the experts is 4 x 2 x 16 numbers, 512 B, of which 3/4 go to other devices: 384 B, and as much back: 768 B.

Flops of a device: to dispatch and to combine its group, 2 x 2 x 8 x 4 x 2 x 16 = 4,096; as an expert with 4 x 2 tokens,
two products of 2 x 8 x 16 x 32, 16,384; together 20,480. An expert's weights are 2 x 16 x 32 numbers, 4,096 B.
""",
    statement="""\
`program` is a layer of experts on one device, written as GShard writes it. G groups of S tokens, E experts, each with
room for C tokens of every group: `dispatch` (G, S, E, C) has a 1 where a token goes to a place of an expert, `combine`
the weight with which its output comes back. The router has made both; who found no place has only zeros.

Four devices are in a row. `split(tensor, dimension, 4)` returns the tensor annotated: in four parts along a dimension.
`replicate(tensor)` says that every device has the whole. A weight's annotation is where it lives after loading. What
is not annotated, the planner decides.

x, dispatch and combine come split by groups, and so goes the result: these annotations stay. Add your own, so that
each device holds one expert, and what is in the places of the experts travels to them and back, and nothing else
moves. `print(self.spmd.explain())` in __init__ tells what the planner has made of it. Other trials have other sizes.
""",
    starter='''\
class AnnotatedMoE(ShardedEngine):
    """A layer of experts, and one annotation."""

    def __init__(self, tokens, experts, capacity, model_dim, hidden_dim):
        mask = (4, tokens, experts, capacity)
        inputs = {"x": (4, tokens, model_dim), "dispatch": mask, "combine": mask}
        parameters = {"wi": (experts, model_dim, hidden_dim), "wo": (experts, hidden_dim, model_dim)}
        self.spmd = Spmd(self, self.program, inputs, parameters)

    def program(self, x, dispatch, combine, wi, wo):
        """x: (G, S, M); dispatch, combine: (G, S, E, C); wi: (E, M, H); wo: (E, H, M). Annotate as much as it needs."""
        x, dispatch, combine = split(x, 0, 4), split(dispatch, 0, 4), split(combine, 0, 4)
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----
        sent = np.einsum("GSEC,GSM->EGCM", dispatch, x)
        # ----- your code -----
        # ----- end of your code -----
        h = np.maximum(np.einsum("EGCM,EMH->EGCH", sent, wi), 0)
        back = np.einsum("EGCH,EHM->EGCM", h, wo)
        # ----- your code -----
        # ----- end of your code -----
        y = np.einsum("GSEC,EGCM->GSM", combine, back)
        return split(y, 0, 4)

    def load_checkpoint(self, params):
        """Copies this device's pieces."""
        self.spmd.load_checkpoint(params)

    def forward(self, pieces):
        """pieces: this device's x, dispatch and combine, by name. Returns its group of the output, (1, 8, 16)."""
        return self.spmd.forward(pieces)

    def backward(self, grads):
        """Not called."""
''',
    hints=(
        "Which tensors have a dimension E that should be split, so that an expert finds its tokens where it lives?",
        (
            "With wi and wo alone, groups and experts meet in the tensors between: both want the same devices, and the "
            "planner leaves whole what two want. Read its plan, and tell it about one tensor more, or one instead."
        ),
        (
            "After its line, `sent = split(sent, 0, 4)`: what is sent to the experts is split as they are. The weights "
            "follow from it, and the way back from the annotation of y."
        ),
    ),
    concept="""\
Between two einsums the same tensor is split first by groups and then by experts: that is an all-to-all, and nobody has
written it. The program stays that of one device, with as many experts as there are; only annotations know how many
devices hold them.
""",
    in_practice="""\
GShard (Lepikhin et al. 2020) trained mixtures of up to 2,048 experts in this way, with the words `replicate`, `split`
and `shard` on a few tensors of the program; GSPMD (Xu et al. 2021) made it general. The masks are large, and systems
that route by index (one-sided puts, grouped matmuls) avoid the products with them.
""",
    sources=(GSHARD, GSPMD),
)
