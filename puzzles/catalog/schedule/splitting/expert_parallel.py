"""expert_parallel: tokens travel to experts and back while the tokens of another microbatch are computed."""

from lib import Goal, Setting, Size
from lib.judging.family import EXPERT_PARALLEL
from puzzles.catalog.papers import DEEPSEEK_V3, GSHARD
from puzzles.catalog.schedule.puzzle import SchedulePuzzle
from puzzles.catalog.schedule.records import records

PUZZLE = SchedulePuzzle(
    title="Expert parallelism",
    goal=Goal(
        "expert_parallel",
        Size(layers=2, batches=8, ranks=4),
        time=10,
        memory=2_300_000,
        traffic=1_300_000,
        records=records(
            EXPERT_PARALLEL,
            (9.0, 2_228_224, 983_040, "expert_parallel_loss_at_the_experts"),
            (13.5, 1_835_008, 983_040, "expert_parallel_one_after_the_other"),
        ),
        setting=Setting("experts", layer="experts"),
        family=EXPERT_PARALLEL,
        steady=True,
    ),
    other_sizes=(Size(2, 4, 2), Size(2, 12, 4)),
    statement="""\
In a mixture of experts, a layer consists of many experts, and each token goes to one of them. Each rank has one expert
of every layer (shard `model.rank`), as large as a layer of the other puzzles, and two of the eight batches.

`dispatch` sends the tokens of a rank's batches to their experts: it takes all tokens of a batch, and returns the tokens
of all ranks for this rank's expert. `collect` sends them back. Each layer needs one dispatch and one collect, in
forward and in backward. Without overlap a step takes 15.5, a third of it waiting.

Here a call returns a handle at once, and `await` on the handle waits for the result. So compute one batch while the
other one travels. You may also pass a handle to another call in place of its value: the second call then starts when
the first has ended, even if the rank is in the middle of a computation. You still have to await the first handle
before the end.
""",
    starter='''\
async def expert_parallel(model: Model) -> Model:
    """Expert parallelism: while the tokens of one batch travel, the other batch is computed."""
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    my_batches = range(model.rank, model.BATCHES, model.RANKS)
    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS)

    # ----- your code -----
    # dispatch(value, layer) takes tokens to the experts, collect(value, layer, [batch]) brings them back.

    # ----- end of your code -----

    for layer in range(model.LAYERS):
        model.set_final_weight(layer, weights[layer])
    return model
''',
    calls=("get_activation", "dispatch", "forward", "collect", "loss", "backward", "update"),
    hints=(
        "First write it without overlap: `await` every call at once, with all of `my_batches` together. Then take "
        "the two batches one at a time.",
        "Make a call as soon as you have what it needs, keep its handle in a dictionary by batch, and await it "
        "only right before the value is used. Dispatch both batches at the start; then go through the layers, and "
        "in each layer through the batches.",
        "After a forward, its tokens have to come back and go out again to the next layer's experts. If you await "
        "the `collect` before you make the `dispatch`, the dispatch starts a whole computation late. Chain them "
        "instead: `model.dispatch(handle, layer)`.",
        "After each forward but the last: `back[batch] = model.collect(out, layer + 1, [batch])` and `there[batch] = "
        "model.dispatch(back[batch], layer + 1)`. Before each computation `await back.pop(batch)`, if there is one, "
        "and then `await there.pop(batch)`. Only the loss needs the value itself. Backward is the same with `layer "
        "- 1`; after layer 0 nothing has to travel.",
    ),
    concept="""\
Tokens travel twice for each layer, forward and backward, and cannot be computed meanwhile. With two batches in turn,
the computation of one hides the communication of the other. All ranks work in the same order. If every call had to
wait for its value, the minimum would be 11.5 steps. With chained calls, each call begins when the one before has
ended, and the minimum is 10. What remains is the wait at the loss, until the last outputs are back. The best schedule
known avoids it.
""",
    in_practice="""\
GShard introduced layers of experts on many devices, with an all-to-all to the experts and another one back
(Lepikhin et al. 2020). DeepSeek-V3 hides them as here: its DualPipe schedule pairs a forward with a backward of
another microbatch, and computes one while the tokens of the other travel (DeepSeek-AI 2024).
""",
    sources=(GSHARD, DEEPSEEK_V3),
    praise="Every exchange after the first overlaps with the computation of another batch.",
)
