"""park_or_recompute: activations go to the host while the link is free, and others are computed again."""

from lib import Goal, Setting, Size
from lib.judging.family import ONE_RANK
from puzzles.catalog.papers import CAPUCHIN, CHECKPOINTING, H100, VDNN
from puzzles.catalog.schedule.puzzle import SchedulePuzzle
from puzzles.catalog.schedule.records import records

PUZZLE = SchedulePuzzle(
    title="Park it or compute it again?",
    goal=Goal(
        "park_or_recompute",
        Size(layers=8, batches=1, ranks=1),
        time=22_499,
        memory=309_900_000,
        records=records(ONE_RANK, (21_251.0, 301_989_888, 0, "park_or_recompute_waits_once")),
        setting=Setting("hopper_host"),
        family=ONE_RANK,
        steady=True,
    ),
    other_sizes=(Size(6, 1, 1), Size(10, 1, 1)),
    statement="""\
One GPU, its host by PCIe, and 8 layers with a width of 3,072. The microbatch has 16,384 tokens: an activation is 5.3
times as large as a weight. Besides weights and states, memory holds three activations.

A layer's input can be kept, parked on the host (`offload`, then `fetch`), or computed again from an input below it. A
copy takes 1,831 us, a forward 774 us and a backward 1,547 us. Copies overlap with computation, one at a time in each
direction: they are free only while the lane is. Recomputing is never free. Mix them.

The model's input takes no memory while you do not hold it: `get_activation` returns it again at any time.

Predict first: with every input kept, a step takes 18,568 us. How much longer does it take within the memory target?
""",
    answer="""\
2,966 us longer: 21,534 us. Inputs 1, 3 and 5 are parked, 2 and 4 are computed again (2 x 774 us), 6 and 7 stay. The
other 1,418 us are waiting, because a copy takes 284 us longer than the two forwards or the backward that it overlaps
with. Parking alone takes 24,216 us: five copies to the host take 9,155 us, and all forwards 6,192 us. Recomputing
alone takes 25,534 us: within the memory it repeats nine forwards. Parking input 6 does not help: backward needs it as
soon as it has left. The best known schedule waits for one of the three copies only, and takes 21,251 us.
""",
    starter='''\
async def park_or_recompute(model: Model) -> Model:
    """Training on one rank; inputs of layers are kept, parked on the host, or computed again."""
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer)

    # ----- your code -----
    # Forward, while some inputs leave for the host; loss; backward, while they return; update.

    # ----- end of your code -----

    for layer in range(model.LAYERS):
        model.set_final_weight(layer, weights[layer])
    return model
''',
    calls=("get_activation", "forward", "loss", "backward", "update", "offload", "fetch"),
    hints=(
        "Take `offload` and `checkpoint` together. Backward begins with the last layers: keep the inputs of layers 6 "
        "and 7.",
        "A copy takes as long as 2.4 forwards, so there is no time for every input to leave. Park every second one, "
        "and compute the others again from it.",
        "Park the inputs of layers 1, 3 and 5. The input of layer 4 is the forward of layer 3's input, made just "
        "before its backward; so is the input of layer 2 from layer 1's.",
        "Forward: before the next `offload`, and before the loss, `model.parked[layer] = await leaving`, then delete "
        "the input. Backward: when only one activation is left, start to fetch the highest parked one; await it "
        "before it is needed, and delete it from `model.parked`.",
    ),
    concept="""\
The link to the host and the GPU work at the same time. A plan that only parks waits for the link. A plan that only
recomputes leaves the link idle. The best plan uses both, and keeps the inputs that backward needs first.

Which of the two is cheaper depends on the width. A copy of T tokens moves T h elements, and a forward makes 2 T h^2
operations: so for wider layers parking is the better choice. At a width of 4,096 parking alone takes 37,256 us and a
mixture takes 35,742 us. At a width of 2,048 recomputing alone takes 11,352 us and a mixture takes 10,509 us.
""",
    in_practice="""\
vDNN parks inputs (Rhu et al. 2016), checkpointing computes them again (Chen et al. 2016). Capuchin chooses for each
tensor, by the time that a copy would be waited for against the time to compute it again (Peng et al. 2020). PCIe 5 with
16 lanes carries 64 GB/s in each direction, of which 55 are used here; the GPU is like an H100 (NVIDIA 2022).
""",
    sources=(H100, CHECKPOINTING, VDNN, CAPUCHIN),
    praise="Each activation is parked, computed again or kept, whichever is fastest.",
)
