"""offload: activations go to the host's memory during forward, and come back during backward."""

from lib import Goal, Record, Setting, Size
from lib.judging.family import ONE_RANK
from puzzles.catalog.papers import VDNN, ZERO_OFFLOAD
from puzzles.catalog.schedule.puzzle import SchedulePuzzle

PUZZLE = SchedulePuzzle(
    title="Offload activations",
    goal=Goal(
        "offload",
        Size(layers=8, batches=1, ranks=1),
        time=19,
        memory=7_300_000,
        records=(Record(19.5, 7_340_032, "solutions/offload.py", ONE_RANK, 0),),
        setting=Setting("copies"),
        host=5_200_000,
        family=ONE_RANK,
        steady=True,
    ),
    other_sizes=(Size(6, 1, 1), Size(10, 1, 1)),
    statement="""\
The sequence is as long as in `checkpoint`, but this device has a host with memory of its own. `offload` copies an
activation there, and `fetch` copies it back. Each copy takes a step, and overlaps with computation. In each direction,
one copy runs at a time.

So a call does not return its result. It starts the copy and returns a handle; `await handle` waits until the copy
has ended, and returns the copied value. Until then the activation stays on the device. Keep offloaded values in
`model.parked`, and delete each once you have fetched it.

Without offloading, training takes 19.5 timesteps and 12,582,912 elements. Take no more time, and 42% less memory. The
host has room for five activations. The model's input need not go there: `get_activation` returns it again at any time,
and takes no time.
""",
    starter='''\
async def offload(model: Model) -> Model:
    """Training on one rank whose activations wait on the host for their backward."""
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer)

    # ----- your code -----
    # Forward, while inputs leave for the host; loss; backward, while the next input comes back; update.

    # ----- end of your code -----

    for layer in range(model.LAYERS):
        model.set_final_weight(layer, weights[layer])
    return model
''',
    calls=("get_activation", "forward", "loss", "backward", "update", "offload", "fetch"),
    hints=(
        "The input of layer 0 needs no room on the host: `get_activation` gives it back at any time.",
        "A copy takes as long as a forward. Start the copy of a layer's input just before the layer's forward, and "
        "await it just after; then the copy has taken no time, and you can delete the input.",
        "On the way back, start to fetch the input of the layer before, then call `backward`, then await the fetch. "
        "Do not offload the inputs that backward needs first.",
        "Park the inputs of layers 1 to 5. Forward: `leaving = model.offload(activations[layer])`, forward, "
        "`model.parked[layer] = await leaving`, delete the input. Backward: `coming = model.fetch(model.parked[layer "
        "- 1])`, backward and update, `activations[layer - 1] = await coming`, `del model.parked[layer - 1]`. Delete "
        "activations and gradients as in `basic`.",
    ),
    concept="""\
An activation is used in forward and in backward, and in between it only takes memory. A slower memory can hold it, if
the copies overlap with computation. The later the layer, the sooner backward needs its input: so the last inputs stay
on the device. Recomputing costs time and no bandwidth; offloading costs bandwidth and no time, as long as a copy is
not slower than a layer.
""",
    in_practice="""\
vDNN (Rhu et al. 2016) offloads the inputs of layers during forward, and prefetches them during backward. ZeRO-Offload
(Ren et al. 2021) keeps the gradients and the optimizer states on the host, and updates there. Both keep copies and
computation in separate streams, as the two lanes do here.
""",
    sources=(VDNN, ZERO_OFFLOAD),
    praise="42% less memory, and no more time.",
)
