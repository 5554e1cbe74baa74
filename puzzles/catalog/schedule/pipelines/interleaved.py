"""interleaved: two small chunks of the model on each rank, so that each hop waits for less work."""

from lib import Goal, Setting, Size
from lib.judging.family import PIPELINE
from puzzles.catalog.papers import MEGATRON_CLUSTERS
from puzzles.catalog.schedule.puzzle import SchedulePuzzle
from puzzles.catalog.schedule.records import records

PUZZLE = SchedulePuzzle(
    title="Interleaved pipeline",
    goal=Goal(
        "interleaved",
        Size(layers=8, batches=8, ranks=4),
        time=57,
        memory=3_100_000,
        traffic=2_200_000,
        records=records(PIPELINE, (57, 2_621_440, 2_228_224, "interleaved_short_warm_up")),
        setting=Setting("stages"),
        family=PIPELINE,
        steady=True,
    ),
    other_sizes=(Size(4, 8, 2), Size(8, 12, 4)),
    statement="""\
In 1F1B, ranks wait while the first batch travels to the last rank, and while the last gradient travels back. With 8
layers on 4 ranks a stage has two layers, so each hop waits for the work of two layers: 1F1B takes 66 steps, and each
rank works for 48 of them.

Make the stages smaller. Rank r gets the layers r and r + 4, two *chunks* of the model. A batch goes through the ranks
twice: after layer 3, rank 3 passes it to rank 0 for layer 4. Now a hop waits for the work of one layer, and the bubble
is half as long: 57 steps are possible. But with two chunks to choose from, a rank must decide what to do next.
""",
    starter='''\
async def interleaved(model: Model) -> Model:
    """Interleaved 1F1B: each rank has several chunks of the model, here of one layer each."""
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    me, ranks = model.rank, model.RANKS
    before, after = (me - 1) % ranks, (me + 1) % ranks
    my_layers = range(me, model.LAYERS, ranks)
    for layer in my_layers:
        weights[layer], opt_states[layer] = model.load_weights(layer)

    def tag(layer, batch):
        """For messages: receive(before, tag(layer, batch)), pass_to(after, out, tag(layer + 1, batch))."""
        return layer * model.BATCHES + batch

    # ----- your code -----
    # Write forward(layer, batch) and backward(layer, batch), then the order in which this rank calls them.

    # ----- end of your code -----

    for layer in my_layers:
        model.set_final_weight(layer, weights[layer])
    return model
''',
    calls=("get_activation", "forward", "loss", "backward", "pass_to", "receive", "update"),
    parameters=("tag",),
    hints=(
        "`forward(layer, batch)` and `backward(layer, batch)` are as in `one_f_one_b`. Activations now come "
        "from rank `before` and go to rank `after`, for every layer but the first and the last.",
        "Rank 0 can start layer 4 when batch 0 comes back from rank 3, after 4 steps. Until then it takes batches "
        "0 to 3 through layer 0. So let groups of 4 batches go through the first chunk, then the same 4 through "
        "the second one.",
        "Write two lists of `(layer, batch)`. Forwards: for each group, for each layer of `my_layers`, for each "
        "batch of the group. Backwards: the same with the layers reversed. As in 1F1B, a rank runs some forwards "
        "first, then one forward and one backward in turn, then the backwards that are left.",
        "Before its first backward a rank runs the forwards of its first chunk for one group, which are "
        "`model.LAYERS - ranks` here, and some more for the ranks after it. Megatron-LM takes two for each: `ahead "
        "= 2 * (ranks - 1 - me) + model.LAYERS - ranks`. That meets the targets. What if you take fewer?",
    ),
    concept="""\
With v chunks on each rank, a hop takes 1/v of the time, and the bubble is 1/v as long. The price is v times as many
messages, and more activations. How many more depends on the order. Megatron-LM's warm-up counts two forwards for each
rank that follows, so here rank 0 keeps 11 activations. Where messages take no time, one forward is enough: rank 0 then
keeps 8 and rank 1 keeps 7, in the same time.
""",
    in_practice="""\
Megatron-LM introduced the interleaved schedule and measured at least 10% more throughput (Narayanan et al. 2021). Its
setting is `virtual_pipeline_model_parallel_size`, the number of chunks on a rank. It wants the number of batches to be
a multiple of the number of ranks, as this order does. PyTorch has it as `ScheduleInterleaved1F1B`.
""",
    sources=(MEGATRON_CLUSTERS,),
    praise="Half of 1F1B's bubble, for twice as many messages.",
)
