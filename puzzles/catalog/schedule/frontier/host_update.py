"""host_update: the host keeps the optimizer states and makes the updates, one step late."""

from lib import Goal, Record, Setting, Size
from lib.judging.family import ONE_RANK
from puzzles.catalog.papers import ZERO_OFFLOAD
from puzzles.catalog.schedule.puzzle import SchedulePuzzle

PUZZLE = SchedulePuzzle(
    title="Update on the host",
    goal=Goal(
        "host_update",
        Size(layers=6, batches=2, ranks=1),
        time=113,
        memory=3_400_000,
        records=(Record(113, 3_407_872, "solutions/host_update.py", ONE_RANK, 0),),
        setting=Setting("host_updates", steps=3, lag=1),
        host=5_700_000,
        family=ONE_RANK,
        steady=True,
    ),
    other_sizes=(Size(4, 2, 1), Size(8, 2, 1)),
    statement="""\
Adam keeps two moments for each weight, so an optimizer state is as large as two weights. States need no GPU: they are
read and written once a step. Here the host keeps them, with a master copy of each weight, and its processor makes the
updates: `await model.update(layer, grad, weight, state, on="host")`, where all three are parked on the host. The
results are parked there too. `fetch` copies a new weight to the device; the master stays.

The host is slow. An update takes 3 steps there, and 0.5 on the device. The updates of the host run one after the other
while the device computes. A copy takes 1 step for each 262,144 elements, so 1 for a weight or a gradient and 2 for a
state. In each direction, one copy runs at a time. A handle may be given to a call in place of a value: an update may
get the handle of its gradient's `offload`, and `fetch` may get `update[0]`, the weight of a handle `update`. Await each
handle once.

Weights may be one step older than the data (`lag=1`, as in `weight_versions`), so a step need not wait for the updates
of the step before. Train for three steps. With all states on the device this takes 116.5 timesteps and 6,553,600
elements. Take 113, and 48% less memory. The host has room for masters, states and one update.
""",
    starter='''\
async def host_update(model: Model) -> Model:
    """Training whose optimizer states and updates are on the host."""
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    parked, steps = model.parked, model.dist.setting.steps

    for layer in range(model.LAYERS):
        parked["weight", layer], parked["state", layer] = model.load_weights(layer, tier="host")

    # ----- your code -----
    # Fetch a copy of each weight. In each step: forward, loss, backward.
    # Each gradient leaves for the host, which updates.

    # ----- end of your code -----

    for layer in range(model.LAYERS):
        model.set_final_weight(layer, weights[layer])
    return model
''',
    calls=("get_activation", "forward", "loss", "backward", "offload", "update", "fetch"),
    parameters=("step", "tier", "on"),
    hints=(
        "Compute both microbatches together: `get_activation(range(model.BATCHES), step)`. Then each layer has one "
        "gradient a step. A backward of both takes 4 steps. How long do the copy of a gradient and an update take?",
        "After `backward` of a layer, start `leaving = model.offload(grad)` and `update = model.update(layer, leaving, "
        'weight, state, on="host")`, without await. After the backward of the next layer, both have ended: await '
        "them, and park the results. The last update of a step ends while the next step begins.",
        "Steps 0 and 1 compute with version 0, step 2 with version 1. So in step 1, after the backward of a layer, "
        "drop its weight and fetch the parked one. In the last step, `model.fetch(update[0])` brings the final weight "
        "as soon as it is there; await these last.",
        "Two places can lose a step. The first forward of step 2 needs the new weight of layer 0, so start "
        '`coming = model.fetch(parked["weight", 0])` before the backward of layer 0 in step 1. And a pending update '
        "keeps the old master, the old state and the gradient: in the forward of the next step, await it after two "
        "layers, when it has ended.",
    ),
    concept="""\
With Adam, states are two thirds of what training keeps of a layer besides activations, and they are used once a step.
So they can live where memory is cheap, and be updated by a processor that is slow: only gradients go there and only
weights come back, 2 weights for each layer and step. To move the states to the device for the update instead would
take 4 weights more. A lag of one step gives the slow processor a whole step of time, so that nobody waits for it.
""",
    in_practice="""\
ZeRO-Offload (Ren et al. 2021) keeps masters, states and updates on the CPU, with an Adam that is written for it. Its
delayed parameter update is the lag of one step used here; it begins after some tens of steps, when training is stable.
DeepSpeed's `offload_optimizer` and PyTorch's `CPUOffloadPolicy` do the same for sharded states.
""",
    sources=(ZERO_OFFLOAD,),
    praise="The host's updates take no time from the device.",
)
