"""three_d: data, pipeline and tensor parallelism at once, each collective on its axis."""

from lib import Goal, Setting, Size
from lib.judging.family import TENSOR_PIPELINE
from puzzles.catalog.papers import MEGATRON, MEGATRON_CLUSTERS
from puzzles.catalog.schedule.puzzle import SchedulePuzzle
from puzzles.catalog.schedule.records import records

PUZZLE = SchedulePuzzle(
    title="3D parallelism",
    goal=Goal(
        "three_d",
        Size(layers=4, batches=4, ranks=8),
        time=10,
        memory=3_500_000,
        traffic=2_300_000,
        records=records(TENSOR_PIPELINE, (10.9, 3_014_656, 2_359_296, "three_d_states_by_layer")),
        setting=Setting("twentieths", mesh={"dp": 2, "pp": 2, "tp": 2}, layer="block"),
        family=TENSOR_PIPELINE,
        steady=True,
    ),
    other_sizes=(Size(8, 4, 8), Size(4, 8, 8)),
    statement="""\
Eight ranks are on a mesh of 2 x 2 x 2. `model.index("pp")` is a rank's place on the axis pp; `model.axis("pp")` lists
the ranks with the same position on all other axes.

- dp: two replicas. Each takes half of the batches; sum gradients over dp.
- pp: two stages of half of the layers. `pass_to` sends to the neighbor.
- tp: two shards of every layer. With one, `forward` takes half a step and
  returns a part of a sum; so does `backward`, for the input gradient.
  `allreduce` the parts over tp.

A collective takes a group: `await model.allreduce(v, layer, group="tp")`. Pass the label of the value: the layer that
reads an activation, or the layer whose backward reads a gradient. Send batches one by one, in the order of 1F1B.
""",
    starter='''\
async def three_d(model: Model) -> Model:
    """Two replicas of a pipeline of two stages, and every layer on two ranks."""
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    pipeline, stage, half = model.axis("pp"), model.index("pp"), model.index("tp")
    per_stage, per_replica = model.LAYERS // len(pipeline), model.BATCHES // len(model.axis("dp"))
    my_layers = range(stage * per_stage, (stage + 1) * per_stage)
    my_batches = range(model.index("dp") * per_replica, (model.index("dp") + 1) * per_replica)
    for layer in my_layers:
        weights[layer], opt_states[layer] = model.load_weights(layer, half, len(model.axis("tp")))

    # ----- your code -----
    # Batches through the pipeline, with sums over tp in every layer; sums of the gradients over dp; updates.

    # ----- end of your code -----

    for layer in my_layers:
        model.set_final_weight(layer, weights[layer])
    return model
''',
    calls=("get_activation", "forward", "loss", "backward", "allreduce", "pass_to", "receive", "update"),
    parameters=("group",),
    hints=(
        "Take `gpipe`, with `pipeline[stage + 1]` and `pipeline[stage - 1]` in place of `model.rank + 1` and "
        "`model.rank - 1`. Both ranks of a tp pair send and receive the same.",
        'After each forward: `activations[layer + 1, batch] = await model.allreduce(part, layer + 1, group="tp")`. '
        "After each backward the same for the gradient, with `layer - 1`. The gradient of the weight is complete: it "
        "is a shard of two, and needs no sum over tp.",
        "Nobody needs the gradient of the model's input, so leave out its sum. Add up the weight gradients of your "
        "batches with `+`, and sum them over dp once, at the end.",
        "The order: stage 0 forwards its first batch, then alternates one forward and one backward; stage 1 does one "
        "forward and one backward from the start. Write two functions, `forward(batch)` and `backward(batch)`; the "
        "number of forwards ahead is `len(pipeline) - stage - 1`. Delete every part right after its sum, or put it "
        'under a key such as `activations["part"]`.',
    ),
    concept="""\
Each axis has its own traffic. Tensor parallelism sums activations in every layer, all the time, so it needs the
fastest links. Data parallelism sums gradients once a step. Pipelines send the least: an activation and its gradient
between two stages. That is why tp goes inside a machine, and pp and dp go between machines. Here you need all three: a
mesh without one of them is slower, keeps more or sends more.
""",
    in_practice="""\
Megatron-LM combines the three for models of up to a trillion parameters, with tensor parallelism inside a server and
pipelines across servers (Narayanan et al. 2021). Splitting a block so that it takes one sum forward and one sum
backward is from Shoeybi et al. (2019).
""",
    sources=(MEGATRON_CLUSTERS, MEGATRON),
    praise="Data, pipeline and tensor parallelism in one schedule.",
)
