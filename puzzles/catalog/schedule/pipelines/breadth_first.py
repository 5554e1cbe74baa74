"""breadth_first: pipelines with sharded weights, in which every switch between chunks costs a gather."""

from lib import Goal, Setting, Size
from lib.judging.family import SHARDED_PIPELINE
from puzzles.catalog.papers import BREADTH_FIRST_PIPELINE
from puzzles.catalog.schedule.puzzle import SchedulePuzzle
from puzzles.catalog.schedule.records import records

PUZZLE = SchedulePuzzle(
    title="Breadth-first pipeline",
    goal=Goal(
        "breadth_first",
        Size(layers=4, batches=8, ranks=4),
        time=32,
        memory=5_100_000,
        traffic=3_700_000,
        records=records(SHARDED_PIPELINE, (31, 5_120_000, 3_211_264, "breadth_first_only_backward")),
        setting=Setting("gathers", mesh={"dp": 2, "pp": 2}),
        family=SHARDED_PIPELINE,
        steady=True,
    ),
    # Always 4 ranks: the mesh is part of the puzzle.
    other_sizes=(Size(8, 8, 4), Size(4, 12, 4)),
    statement="""\
`pipeline_fsdp` was slow because weights were gathered again and again. Here are two pipelines of two stages, on a
mesh with the axes `dp` and `pp`. Stage s has the layers s and s + 2. Each of the two ranks of a stage (`group="dp"`)
holds half of each of its weights, and takes every second batch: four of the eight.

A layer has 4 h^2 weights here: as in real models, a weight is larger than a microbatch's activation. A gather takes a
full step, and so does a reduce-scatter. Keep one full weight at a time. In the order of `interleaved`, a rank switches
between its layers all the time, and gathers 11 times. In which order are 3 gathers enough?
""",
    starter='''\
async def breadth_first(model: Model) -> Model:
    """A pipeline with sharded weights: all batches through one chunk before the next."""
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    stage, replica = model.index("pp"), model.index("dp")
    pipeline, replicas = model.axis("pp"), len(model.axis("dp"))
    before, after = pipeline[stage - 1], pipeline[(stage + 1) % len(pipeline)]
    my_layers = range(stage, model.LAYERS, len(pipeline))
    my_batches = range(replica, model.BATCHES, replicas)
    for layer in my_layers:
        weights[layer], opt_states[layer] = model.load_weights(layer, replica, replicas)

    def tag(layer, batch):
        """For messages: receive(before, tag(layer, batch)), pass_to(after, out, tag(layer + 1, batch))."""
        return layer * model.BATCHES + batch

    # ----- your code -----
    # Gather a weight, use it for as many batches as possible, delete it; scatter each gradient once.

    # ----- end of your code -----

    for layer in my_layers:
        model.set_final_weight(layer, weights[layer])
    return model
''',
    calls=(
        "get_activation",
        "allgather",
        "forward",
        "loss",
        "backward",
        "scatterreduce",
        "pass_to",
        "receive",
        "update",
    ),
    parameters=("group", "tag"),
    hints=(
        "A gathered weight should serve all four batches of the rank before it is deleted.",
        "Take all batches through the first layer of `my_layers`, then all through the second one. Go back the "
        "same way: all batches through the second layer, then all through the first one.",
        "Between the forward and the backward of the second layer the weight can stay. Gather before you receive, "
        "so that the gather runs while the batch is still on its way.",
        "`weights['whole'] = await model.allgather(weights[layer], layer, group='dp')` before each loop over "
        "`my_batches`, and `del weights['whole']` after it. In the backward loop add up the gradients of all "
        "batches, delete the weight, and only then `await model.scatterreduce(grad_weights[layer], layer, "
        "group='dp')`.",
    ),
    concept="""\
A depth-first order sends a batch on as early as possible. A breadth-first order takes all batches through one chunk
before the next. With full weights on each rank, depth-first needs less memory, and both are equally fast. With sharded
weights each switch between chunks costs a gather: with v chunks, breadth-first needs 2v - 1 gathers, for any number of
batches. The price is the same as in GPipe: the activations of all batches are kept. The best schedule known mixes the
two orders.
""",
    in_practice="""\
Lamy-Poirier (2022) introduced breadth-first pipelines for exactly this combination with fully sharded data
parallelism, where the gathers can also overlap with computation. PyTorch has the order as `ScheduleLoopedBFS`.
""",
    sources=(BREADTH_FIRST_PIPELINE,),
    praise="Three gathers where the order of `interleaved` needs eleven.",
)
