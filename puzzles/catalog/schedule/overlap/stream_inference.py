"""stream_inference: a model that does not fit on the device, whose weights come from the host just in time."""

from lib import Goal, Record, Setting, Size
from lib.judging.family import ONE_RANK
from puzzles.catalog.papers import DEEPSPEED_INFERENCE, FLEXGEN
from puzzles.catalog.schedule.puzzle import SchedulePuzzle
from puzzles.catalog.schedule.records import records

PUZZLE = SchedulePuzzle(
    title="Streamed inference",
    goal=Goal(
        "stream_inference",
        Size(layers=8, batches=2, ranks=1),
        time=15,
        memory=700_000,
        records=(
            Record(15.0, 786_432, "solutions/stream_inference.py", ONE_RANK, 0),
            *records(ONE_RANK, (22.0, 524_288, 0, "stream_inference_nothing_ahead")),
        ),
        setting=Setting("streams", task="infer"),
        family=ONE_RANK,
        steady=True,
    ),
    other_sizes=(Size(4, 2, 1), Size(6, 3, 1)),
    statement="""\
This is inference: there is no loss, no backward and no update. The result is the last activation of all batches, which
you declare with `set_output`.

The model has eight layers, and there is room for two. All weights are on the host: `load_weights` with `tier="host"`
parks them there. `fetch` copies a weight to the device in one step, which overlaps with computation: the call
returns a handle, and `await handle` returns the weight. The parked weight stays on the host. A weight that
`load_weights` puts on the device is needed there for the next request as well, so it counts from the beginning to the
end.

A layer computes both batches at once, which takes two steps. So the device need never wait, except for the first
weight.
""",
    starter='''\
async def stream_inference(model: Model) -> Model:
    """Inference with two layers on the device and all of them on the host."""
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in range(model.LAYERS):
        model.parked[layer], _ = model.load_weights(layer, tier="host")
    activations[0] = model.get_activation(range(model.BATCHES))

    # ----- your code -----
    # Fetch the first weight; for each layer, fetch the next one while it computes.

    # ----- end of your code -----

    model.set_output(activations[model.LAYERS])
    return model
''',
    calls=("fetch", "forward"),
    parameters=("tier",),
    hints=(
        "First write it with one weight at a time: fetch it, await it, forward, delete it. It takes 22 steps.",
        "A weight takes one step to arrive, and a layer two to compute. If the next weight is on its way while a layer "
        "computes, it is there in time.",
        "Two weights on the device are enough: the one in use and the one that is coming. Delete a weight right after "
        "its forward, and an activation as soon as the next one exists.",
        "`coming = model.fetch(model.parked[0])` before the loop. In it: `weights[layer] = await coming`; unless it is "
        "the last layer, `coming = model.fetch(model.parked[layer + 1])`; forward; delete the weight and the input.",
    ),
    concept="""\
In inference a weight is used once for each pass, so it does not have to stay. Streaming needs room for two layers,
whatever the depth of the model. It is as fast as if everything fit, if computing a layer takes at least as long
as fetching the next: large batches make it so, since they compute longer with the same weights.
""",
    in_practice="""\
ZeRO-Inference, a part of DeepSpeed Inference (Aminabadi et al. 2022), keeps the weights in the memory of the host or
on a drive and fetches layer by layer, ahead of time. FlexGen (Sheng et al. 2023) also decides what is kept where, and
lets many batches use a layer before it goes on to the next.
""",
    sources=(DEEPSPEED_INFERENCE, FLEXGEN),
    praise="Eight layers ran in the memory of two, and the device waited only for the first weight.",
)
