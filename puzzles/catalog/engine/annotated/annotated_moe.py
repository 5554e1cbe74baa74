"""AnnotatedMoE: a mixture-of-experts layer with one annotation."""

from puzzles.catalog.engine.puzzle import EnginePuzzle
from puzzles.catalog.papers import GSHARD, GSPMD

PUZZLE = EnginePuzzle(
    slug="AnnotatedMoE",
    title="A layer of experts, with one annotation",
    targets={"sent": 768, "flops": 20_480, "weights": 4_096},
    imports=("from lib.layout.spmd import Spmd, replicate, split",),
    arithmetic="""\
4 groups of 8 tokens, 4 experts with room for 2 tokens of each group, model_dim 16, hidden_dim 32. A group sends
4 x 2 x 16 numbers to the experts, 512 B, of which 3/4 go to other devices: 384 B, and the same back: 768 B.

Flops of a device: to dispatch and combine its group, 2 x 2 x 8 x 4 x 2 x 16 = 4,096; as an expert with 4 x 2 tokens,
two products of 2 x 8 x 16 x 32, 16,384; together 20,480. An expert's weights are 2 x 16 x 32 numbers, 4,096 B.
""",
    statement="""\
`program` is a layer of experts on one device, written as in GShard. There are G groups of S tokens, and E experts, each
with room for C tokens of every group. `dispatch` (G, S, E, C) is 1 where a token goes to a place of an expert;
`combine` holds the weight with which its output comes back. The router has computed both; a token without a place has
only zeros.

Four devices are in a row. `split(tensor, dimension, 4)` returns the annotated tensor: in four parts along a dimension.
`replicate(tensor)` means that every device has the full tensor. A weight's annotation is where it lives after loading.
The planner decides everything else.

The inputs x, dispatch and combine and the result are split by groups: keep these annotations. Add your own, so that
each device holds one expert, and only the tokens in the experts' places move, to the experts and back.
`print(self.spmd.explain())` in __init__ shows the planner's result. Other trials have other sizes.

`params` holds 'wi' (4, 16, 32) and 'wo' (4, 32, 16). `forward` gets a dictionary of the device's 'x' (1, 8, 16),
'dispatch' and 'combine', (1, 8, 4, 2) each.
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
        "Which tensors have a dimension E that should be split, so that the tokens of an expert are where it lives?",
        (
            "One annotation is enough: groups and experts meet between the einsums, and the planner fills in the rest "
            "at the least cost. Read its plan: which tensors does it split by experts, and which by groups?"
        ),
        (
            "After its line, `sent = split(sent, 0, 4)`: the dispatched tokens are split like the experts. The weights "
            "follow from it, and the way back follows from the annotation of y. Splitting wi does the same."
        ),
    ),
    concept="""\
Between two einsums, the same tensor is split first by groups and then by experts. That is an all-to-all, although
it is not written anywhere. The program stays the single-device program, with any number of experts; only the
annotations know how many devices hold them.
""",
    in_practice="""\
GShard (Lepikhin et al. 2020) trained mixtures of up to 2,048 experts this way, with `replicate`, `split` and `shard` on
a few tensors of the program; GSPMD (Xu et al. 2021) made it general. The masks are large. Systems that route by index
(one-sided puts, grouped matmuls) avoid multiplying with them.
""",
    sources=(GSHARD, GSPMD),
)
