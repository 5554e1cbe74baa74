"""weight_versions: a second version of the weights, and no flush between steps."""

from lib import Goal, Record, Setting, Size
from lib.judging.family import PIPELINE
from puzzles.catalog.papers import PIPEDREAM, PIPEDREAM_2BW
from puzzles.catalog.schedule.puzzle import SchedulePuzzle

PUZZLE = SchedulePuzzle(
    title="Two versions",
    goal=Goal(
        "weight_versions",
        Size(layers=4, batches=4, ranks=4),
        time=57,
        memory=1_500_000,
        traffic=2_200_000,
        records=(Record(57, 1_572_864, "solutions/weight_versions.py", PIPELINE, 2_228_224),),
        setting=Setting("stages", steps=4, lag=1),
        family=PIPELINE,
        steady=True,
    ),
    other_sizes=(Size(4, 8, 4), Size(2, 4, 2)),
    statement="""\
A pipeline runs empty at the end of each training step: the next one begins with new weights, which need the gradients
of all microbatches. With four microbatches on four ranks this bubble is nearly half of the time. 1F1B takes 84
timesteps for four training steps, and each rank works for 48 of them.

What if the next step did not wait? In this game weights may be one step older than the data (`lag=1`). The data of step
t go forward and backward with the weights of version t or t - 1. A microbatch uses one version in all layers, and all
microbatches of a step use the same version. Each step's gradient then updates the newest weights, in order. This
training is not quite the same: its gradients are one step late.

Train for four steps in 57 timesteps. Rank 0 need not keep the model's input: `get_activation` returns it again at any
time.
""",
    starter='''\
async def weight_versions(model: Model) -> Model:
    """2BW: 1F1B through all steps, with two versions of the weights."""
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    me, last = model.rank, model.RANKS - 1
    steps = model.dist.setting.steps
    weights[0], opt_states[0] = model.load_weights(me)  # the keys are versions

    # ----- your code -----
    # Number all microbatches: step, batch = divmod(number, model.BATCHES). Then 1F1B over all numbers.

    # ----- end of your code -----

    model.set_final_weight(me, weights[steps])
    return model
''',
    calls=("get_activation", "forward", "loss", "backward", "pass_to", "receive", "update"),
    parameters=("step",),
    hints=(
        "Start from your `one_f_one_b`, and let its microbatches go on through all steps: `get_activation([batch], "
        "step)` returns the input of a step. When does rank 0 get the last gradient of step 0, and which microbatch "
        "of step 1 has it reached by then?",
        "When step t begins on rank 0, the last backward of step t - 1 is still to come, but the last backward of step "
        "t - 2 is done: so version t - 1 exists. Step 0 has version 0, and so has step 1.",
        "`forward` and `backward` use `weights[max(0, step - 1)]`. After the last backward of a step, update "
        "`weights[step]` to `weights[step + 1]`, and delete `weights[step - 1]`, which no later step needs.",
        "The memory has room for two versions, the state, a gradient and three activations, besides the output that "
        "is being sent. Rank 0 has four microbatches in flight, but need not keep the model's input: "
        "`get_activation` takes no time, so call it once more before the backward. And `update` uses "
        "`opt_states.pop(step)`.",
    ),
    concept="""\
With one version of the weights, a pipeline has a bubble in every step. With two versions the pipeline never runs
empty: n steps of m microbatches take mn(F + B) + (K - 1)(F + B), in place of n(m + K - 1)(F + B). That costs one more
weight on each rank, and the gradients are one step late. Without the rule that a step has one version, each microbatch
would meet whatever is newest, and early ranks would need a version for each microbatch in flight.
""",
    in_practice="""\
PipeDream (Narayanan et al. 2019) kept a version for each microbatch in flight; PipeDream-2BW (Narayanan et al. 2021)
needs two, by updating once for several microbatches. Large models are still trained with a flush, because late
gradients make a loss curve harder to explain. In reinforcement learning, where samples come from older weights anyway,
a lag of a step or more is usual.
""",
    sources=(PIPEDREAM, PIPEDREAM_2BW),
    praise="The pipeline never runs empty between steps.",
)
