# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # From one device to a cluster
#
# One model, ten steps, three costs: the time of a training step, the memory of a device, and the elements that a
# device sends. In each step you first compute a number. Then a cell runs a schedule and shows the measured number next
# to yours. Replace the `...` in a cell by your formula and run it; with `...` left in, it only measures.
#
# The page *The field in ten steps* of the documentation has the same model, formulas and figures. `puzzles path` lists
# the puzzles of each step, in which you write these schedules yourself.

# %% [markdown]
# {setup}

# %%
from contextlib import redirect_stdout

from drawing import draw
from lib import Setting, referee, run_async
from lib.pipelines import Timetable, gpipe, one_f_one_b, pipeline, recognize, zb_h1
from puzzles import play
from solutions.basic import basic
from solutions.checkpoint import checkpoint
from solutions.ddp import ddp
from solutions.ddp_overlap import ddp_overlap
from solutions.expert_parallel import expert_parallel
from solutions.fsdp import fsdp
from solutions.grad_accum import grad_accum
from solutions.ring_context import ring_context
from solutions.tensor_parallel import tensor_parallel
from solutions.three_d import three_d

# %% [markdown]
# The model has 8 layers. Each is a matrix of 4,096 x 4,096, so it has 16,777,216 weights. A step trains on 4
# microbatches of 2,048 tokens. The devices are H100-like GPUs in one machine. Times are in microseconds (us); memory
# and messages are in elements.

# %%
L, B, N = 8, 4, 4  # layers, microbatches, devices
W = L * 4096**2  # all weights; the optimizer states have as many elements, and so have the weight gradients
A = 4096 * 2048  # the activation of one microbatch between two layers
FLOPS = 400_000_000  # operations of a device in a microsecond
LINK = 225_000  # elements on a link in a microsecond
HOP = 2  # microseconds for each hop of a ring; a collective over N devices has N - 1 hops, an all-reduce twice as many


async def measure(
    schedule, time=..., memory=..., sent=..., size=(L, B, N), costs="hopper_node", picture=True, **setting
):
    """Runs a schedule and prints its costs next to your predictions; then draws it, if a picture is wanted."""
    played = Setting(costs, **setting)
    outcome = await run_async(schedule, *size, setting=played)
    if outcome.error:
        print(outcome.error)
        return draw(outcome.trace)
    report = referee(outcome.trace)
    print(f"{recognize(outcome.trace).text}, {report.bubble:.1%} idle")
    for name, figure, predicted in (
        (f"time in {played.costs.time_unit}", report.makespan, time),
        ("memory", report.peak.memory, memory),
        ("sent", report.traffic, sent),
    ):
        mine = "" if predicted is ... else f"   you predicted {predicted:,.0f}: {predicted / figure - 1:+.1%}"
        print(f"  {name:13} {figure:>13,.0f}{mine}")
    with redirect_stdout(None):  # draw prints time and memory, too
        return draw(outcome.trace) if picture else None


# %% [markdown]
# ## 1. One device
#
# A forward takes 2 operations for each weight and token, a backward 4. *How long does the step take on one device? How
# many elements are in memory when all microbatches go forward together: the weights, their optimizer states, and the
# input of every layer?*

# %%
await measure(basic, time=..., memory=..., size=(L, B, 1))

# %% [markdown]
# Six operations for each weight and token are 6 W B 2,048 / FLOPS = 16,493 us. The clock rounds each operation up to a
# microsecond and shows 16,504. Call this time T. Memory is 2 W + L B A, and 4 A more for the output of the last layer:
# 570,425,344 elements.
#
# Now the microbatches come one after the other, and their gradients are added up. *What is in memory at the peak?*

# %%
T = 16_504
await measure(grad_accum, memory=..., size=(L, B, 1))

# %% [markdown]
# The gradients of all weights, but the activations of only one microbatch: 3 W + L A, and A more for the last output.
# With 4 microbatches this saves little. With 64 it would save most of the memory.

# %% [markdown]
# ## 2. Split the batch
#
# Four devices have a microbatch each. After backward, an all-reduce adds up the gradients of each layer. In it, every
# device sends 2(N-1)/N times the elements of a gradient. *How long does the step take, and how many elements does a
# device send?*

# %%
await measure(ddp, time=..., sent=...)

# %% [markdown]
# A quarter of T is 4,126 us. Each of 8 all-reduces sends 1.5 gradients, which takes 112 us, and has 6 hops: 124 us.
# Together that is 5,118 us; the clock shows 5,120. Devices wait for 19.4% of the time.

# %% [markdown]
# ## 3. Shard the model's state
#
# All four devices hold the same weights, states and gradients. With FSDP each keeps a quarter of them. An all-gather
# restores a layer's weight before forward and again before backward, and a reduce-scatter sums its gradient. Each of
# the three sends (N-1)/N times the elements of a layer. *How many elements does a device send? What is its memory, with
# the shards of weights and states, the activations of one microbatch, and one layer's full weight and gradient?*

# %%
await measure(fsdp, memory=..., sent=...)

# %% [markdown]
# It sends 3(N-1)/N W = 301,989,888 elements, half as much again as before. Memory is 2 W/N + L A + 2 W/L = 167.8 M by
# the formula and 184.5 M measured, where data parallelism needed 419.4 M.

# %% [markdown]
# ## 4. Recompute activations
#
# Backward needs the input of every layer. If you keep only some of them, you can compute the others again, from the
# last one that you kept. *If forward runs twice for half of the layers, how long does the step take?*

# %%
await measure(checkpoint, time=..., size=(L, B, 1))

# %% [markdown]
# A forward is a third of the work, so half of it is a sixth of T: 19,255 us. The clock shows 19,256. The peak falls
# from 570.4 M to 402.7 M elements. Recomputing every layer takes at most 4/3 T.

# %% [markdown]
# ## 5. Split the layers
#
# Each device holds 2 of the 8 layers, and the microbatches pass through the devices. The last device starts late, and
# the first one waits for it at the end. With B microbatches on N devices, a share of (N-1)/(B+N-1) of the time is idle.
# *How long does the step take?*

# %%
await measure(pipeline(gpipe), time=...)

# %% [markdown]
# By the formula T/N (B+N-1)/B = 7,220 us. The messages add the rest: the clock shows 7,704 us, and 46.4% are idle where
# the formula says 3/7, which is 42.9%.
#
# More microbatches make the bubble smaller. But GPipe keeps the activations of all of them until backward begins. In
# 1F1B ("one forward, one backward"), a device holds at most as many microbatches as there are devices. *What are the
# time and the memory of 1F1B with 16 microbatches? Its weights, states and gradients are 3 W/N, and it has L/N layers.*

# %%
await measure(pipeline(one_f_one_b), time=..., memory=..., size=(L, 16, N), picture=False)

# %% [markdown]
# The formulas say 19,598 us and 3 W/N + L/N N A = 167.8 M; measured are 21,008 us and 176.2 M. GPipe takes as long, and
# needs 486.5 M. ZB-H1 cuts backward in two: the previous device waits only for the input gradient, so weight gradients
# can fill the bubble. *Will it be idle for less than 21.4% of the time?*

# %%
await measure(pipeline(zb_h1), size=(L, 16, N), picture=False)

# %% [markdown]
# It is idle for 12.8%. `lib.pipelines` has more orders: `interleaved`, `zb_h2`, `zb_v`. You can also write one as text,
# with a line for each device: `1F0` is the forward of stage 1 for microbatch 0. This one is 1F1B. *Move a cell: which
# cells can trade places, and which make all devices wait forever?*

# %%
mine = Timetable.read("""
0F0 0F1 0B0 0F2 0B1 0F3 0B2 0B3
1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3
""")
await measure(pipeline(mine), size=(2, 4, 2))

# %% [markdown]
# ## 6. Overlap communication
#
# In step 2 every device computed, then waited for the all-reduces. Now an all-reduce starts as soon as the gradients of
# two layers are ready, while backward goes on. *Which all-reduce can nothing hide, and how long does the step take?*

# %%
await measure(ddp_overlap, time=...)

# %% [markdown]
# The last one: no computation is left that could hide it. It takes 2 x 112 us and 6 hops, so the step takes 4,126 + 236
# us = 4,362 us. The clock shows 4,364, where step 2 took 5,120. The price is memory: gradients that are being summed
# have to be kept.

# %% [markdown]
# ## 7. Split each layer
#
# Each device holds a quarter of every layer and computes a partial result from the full input. An all-reduce adds up
# the partial results: one for each layer in forward, one in backward. The first layer needs none in backward, since
# nobody reads the gradient of its input. *How many elements does a device send for 4 microbatches?*

# %%
await measure(tensor_parallel, time=..., sent=..., layer="block", picture=False)

# %% [markdown]
# Each of 15 all-reduces sends 2(N-1)/N B A elements, 755.0 M together, and takes 236 us. With a quarter of T that is
# 7,666 us; the clock shows 7,668. So tensor parallelism needs fast links, and batches that are small compared to the
# weights.

# %% [markdown]
# ## 8. Split the sequence
#
# In ring attention each device has some of the tokens. Keys and values, 2 A/N for each microbatch, pass around the ring
# in N-1 hops in forward. In backward they pass again, with their gradients. All weights are on every device, so their
# gradients are all-reduced as in step 2. *How many elements does a device send in a step?*
#
# The next cell has a model of its own, because only some costs have a price for attention: 2 layers of 262,144 weights,
# and one long sequence, whose activation has 1,048,576 elements.

# %%
long_L, long_W, long_A = 2, 2 * 262_144, 1_048_576
await measure(ring_context, sent=..., size=(long_L, 1, N), costs="context", layer="attention", shares=8)

# %% [markdown]
# It sends 6(N-1)/N L A for keys, values and their gradients, and 2(N-1)/N W for the weight gradients: 10,223,616
# elements. Only 5.9% of the time is idle, because the next block travels while a device computes with this one.

# %% [markdown]
# ## 9. Split the experts
#
# Each layer now has four experts, one on each device, and each token goes to one of them. A microbatch is routed with
# an all-to-all and comes back with another, in forward and in backward. *A device has a quarter of the tokens. In an
# all-to-all it sends (N-1)/N of what it has. How many elements does it send in a step?*

# %%
await measure(expert_parallel, sent=..., layer="experts")

# %% [markdown]
# Four all-to-alls for each layer are 4(N-1)/N L B A/N = 201.3 M. The schedule sends 195.0 M: nobody needs the gradient
# of the first layer's input.

# %% [markdown]
# ## 10. Combine them on a cluster
#
# Eight devices: 2 replicas, each of 2 stages, each on 2 devices that share its layers. *What is the time of a step if
# nobody waits? Which share of the time will be idle, at least, if each replica pipelines 2 microbatches through 2
# stages?*

# %%
await measure(three_d, time=..., size=(L, B, 8), layer="block", mesh={"dp": 2, "pp": 2, "tp": 2})

# %% [markdown]
# Without waiting, T/8 = 2,063 us. The bubble makes a third of the time idle, and the sums in every layer more: the
# clock shows 4,350 us, with 52.6% idle. A larger batch would help most.
#
# Real clusters are larger, but the costs are the same. Take Llama 3 8B, with 8.03 billion parameters, on 16 GPUs of 80
# GiB. A parameter takes 18 bytes: its weight, its gradient, and the optimizer states. *How many GiB is that, and does
# it fit on one GPU?* The next cell gives all of it to each of 16 replicas.

# %%
from lib.planning import Split


def llama_8b_16(job):
    return Split(dp=16, zero=0)


await play("llama_8b_16", llama_8b_16)

# %% [markdown]
# The verdict lists 89.7 GiB of optimizer states, 29.9 of gradients and 15.0 of weights: 134.6 GiB, which is 18 bytes
# for each parameter. That is more than the GPU has, before any activation. In the puzzle you choose a split that fits
# and is fast.
#
# ## Now you
#
# `puzzles next` opens the first puzzle of this path that you have not solved; **01_puzzles** and the notebooks from
# **03_memory** on have them as cells. To see what your own solution costs on this model, give it to `measure`.
# **10_real_jobs** has the last two steps of the path, with real models.
