# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Tour: one training step, by hand
#
# The puzzles ask you to schedule the training of a model on several devices: who computes what, when, and what to
# send to whom. This tour shows you every piece that you will have in your hands. Run the cells from top to bottom
# with Shift+Enter, then change something and run it again. You cannot break anything: what is not allowed is refused,
# and a refusal says why.

# %% [markdown]
# {setup}

# %%
import asyncio

from drawing import draw, draw_group
from lib import Dist, Model, WeightGrad, referee, trace_of
from puzzles import play

# %% [markdown]
# ## What a device holds
#
# A `Model` is one device, which we call a *rank*, with a model that is to be trained for one step. Ours has two
# layers, and the step is made of four microbatches, or *batches* for short.
#
# No numbers are multiplied here. Every value is a label: it knows what it is, of which layer, for which batches, and
# how much memory it takes. That is all a schedule needs, and it makes a run take milliseconds.

# %%
model = Model(layers=2, batches=4)
weights, opt_states, activations, grad_activations, grad_weights = model.storage()

# %% [markdown]
# Those five dictionaries are the memory of the device.
#
# | dictionary | holds |
# |---|---|
# | `weights` | what is trained |
# | `opt_states` | what the optimizer remembers for each weight, such as its momentum |
# | `activations` | what goes into a layer, on the way forward |
# | `grad_activations` | the gradient of what comes out of a layer, on the way back |
# | `grad_weights` | the gradients that the update needs |
#
# Load each layer's weight, with its optimizer state. The last line of the cell shows one of them.

# %%
for layer in range(model.LAYERS):
    weights[layer], opt_states[layer] = model.load_weights(layer)
weights[0]

# %% [markdown]
# The picture is the network: a column for each layer, and between the columns the places where activations flow. The
# weight fills its column because it is whole. Its size stands below: a layer is a square matrix of 512 x 512, so its
# weight has 262,144 elements. Its optimizer state has as many, and so will its gradient.
#
# The input of the model, for batches 2 and 3 only:

# %%
activations[0] = model.get_activation([2, 3])
activations[0]

# %% [markdown]
# Half of the place is filled, because two of the four batches are there. One batch of activations takes 131,072
# elements.
#
# ## Forward, loss, backward
#
# `forward` takes an activation through a layer. Keep the result under the number of the layer that reads it next: the
# output of layer 0 is `activations[1]`.

# %%
for layer in range(model.LAYERS):
    activations[layer + 1] = model.forward(layer, activations[layer], weights[layer])
draw_group(activations)

# %% [markdown]
# At the end `loss` turns an activation into a gradient. `backward` takes the gradient back through a layer. For that
# it needs what went into the layer on the way forward, which is why you have kept it. It returns two values: the
# gradient of the layer's weight, and the gradient for the layer before.

# %%
grad_activations[2] = model.loss(activations[2])
for layer in reversed(range(model.LAYERS)):
    grad_weights[layer], grad_activations[layer] = model.backward(
        layer, activations[layer], grad_activations[layer + 1], weights[layer]
    )
draw_group(grad_activations)

# %% [markdown]
# ## What `del` frees
#
# A value takes memory for as long as it stands in a dictionary. Now that backward is done, nobody will read the
# activations and their gradients again, so let them go:

# %%
before = model.memory()
activations.clear()
grad_activations.clear()
print(f"{before:,} elements before, {model.memory():,} after")
model.status()

# %% [markdown]
# `del activations[0]` forgets a single one. Keeping a value in a local variable instead does not hide it: the referee
# sees when it is used, and counts it until then.
#
# ## What a gradient knows
#
# A weight gradient remembers which batches it has seen. These two have seen batches 2 and 3,
# which the little squares below show:

# %%
draw_group(grad_weights)

# %% [markdown]
# ## A refusal, and how to read it
#
# The update wants the gradient of the whole step. Ours has seen only half of the batches, so it is refused:

# %%
try:
    model.update(0, grad_weights[0], weights[0], opt_states[0])
except AssertionError as refusal:
    print(refusal)

# %% [markdown]
# Read it from left to right: which rank, at what time on its clock, in which call; then what is wrong with what you
# gave it; and after the semicolon the next move. Nothing has happened: neither the clock nor the memory has changed.
#
# While exploring we may pretend. `fake_grad` makes up a gradient of the missing batches, and `+` adds the two. (In a
# puzzle the referee refuses a made-up gradient, unless it is one of no batches, which is a zero.)

# %%
for layer in range(model.LAYERS):
    grad_weights[layer] = grad_weights[layer] + model.fake_grad(layer, [0, 1])
grad_weights[0]

# %% [markdown]
# Now the gradient is complete, and so the update goes through. It returns a new weight and a new state; store both.
# `set_final_weight` says that this is the result for its layer.

# %%
for layer in range(model.LAYERS):
    weights[layer], opt_states[layer] = model.update(layer, grad_weights[layer], weights[layer], opt_states[layer])
    model.set_final_weight(layer, weights[layer])
report = Model.check([model])

# %% [markdown]
# ## How to read the timeline
#
# `draw` shows a run as a picture. Each rank has a lane, and time runs to the right. A box is an operation, as long as
# it takes, in the colour of its layer: **F0** is the forward of layer 0, pale and pointing to the right, with its
# batches below; **B0** is its backward, stronger and pointing to the left; **U0** is its update, and the flag **L**
# the loss, which takes no time. Where a lane is hatched, the rank is idle; the *bubble* is the share of such time.
#
# Below the lanes runs the memory of each rank, by what fills it, and a red mark shows the peak. Point at a box to read
# all about it. The line at the top has the figures that you will be judged by.

# %%
draw([model])

# %% [markdown]
# ## What is counted
#
# | operation | takes |
# |---|---|
# | `forward`, `backward` | 1 step for each batch |
# | `update` | 0.5 steps |
# | a collective | 0.3 steps, from when the last rank has joined |
# | `pass_to`, `receive` | 0.2 steps for each value |
# | everything else | nothing |
#
# *Timesteps* is when the last operation starts, on any rank. *Peak memory* is the most that any rank holds when one
# of its operations starts, or at the end. Every puzzle sets a target for each, and has three stars: one for a correct
# schedule, two if it meets both targets, three if no schedule that we know beats it.

# %% [markdown]
# ## Several ranks
#
# From here on there are four ranks. Each has its own `Model`, and they share a `Dist`, through which they meet. You
# write one function; it runs once for each rank, all at the same time, and `model.rank` tells which one it is. A call
# that involves other ranks is awaited. Python's own `asyncio.gather` runs them:


# %%
async def together(function, ranks=4):
    dist = Dist(ranks)
    return await asyncio.gather(*(function(Model(rank, dist, layers=2, batches=4)) for rank in range(ranks)))


# %% [markdown]
# ### All-reduce: everybody gets the sum
#
# Each rank brings the gradient of one batch. Afterwards each has the gradient of all of them. In the picture a box is
# a gradient, filled as far as it is there, and the dots beside it are the batches that it has seen.

# %% [markdown]
# {collective: allreduce}

# %%
grads = [WeightGrad(0, 2, {rank}, 4) for rank in range(4)]


async def reduce_all(model):
    return await model.allreduce(grads[model.rank], 0)


sums = await together(reduce_all)
draw_group({"rank 1, before": grads[1], "rank 1, after": sums[1]})

# %% [markdown]
# ### All-gather: everybody gets all the shards
#
# A weight can be cut into *shards*, equal parts that live on different ranks. `load_weights(layer, shard, total)`
# loads one. An all-gather brings them together.

# %% [markdown]
# {collective: allgather}


# %%
async def gather_all(model):
    shard, _ = model.load_weights(0, model.rank, model.RANKS)
    return shard, await model.allgather(shard, 0)


pairs = await together(gather_all)
draw_group({"rank 1, before": pairs[1][0], "rank 1, after": pairs[1][1]})

# %% [markdown]
# ### Reduce-scatter: everybody gets a shard of the sum
#
# Here `scatterreduce` for short. The gradients are summed over the ranks as in an all-reduce, but each rank gets only
# the shard of its own number.

# %% [markdown]
# {collective: scatterreduce}


# %%
async def scatter_all(model):
    return await model.scatterreduce(grads[model.rank], 0)


scattered = await together(scatter_all)
draw_group({"rank 1, before": grads[1], "rank 1, after": scattered[1]})

# %% [markdown]
# Gather those shards, and you have what the all-reduce gave. So an all-reduce is a reduce-scatter followed by an
# all-gather, which will matter in puzzle 4. The next cell shows that the values are equal, and what each rank sends:
# with four ranks, the bytes of the two halves add up to those of the whole.


# %%
async def in_two_halves(model):
    return await model.allgather(await model.scatterreduce(grads[model.rank], 0), 0)


async def bytes_sent(function):
    models = []

    async def noted(model):
        models.append(model)
        return await function(model)

    await together(noted)
    return referee(trace_of(models)).ranks[0].bytes_sent


halves = await together(in_two_halves)
print("equal:", all(half.batches == total.batches and half.is_complete() for half, total in zip(halves, sums)))
for function in (reduce_all, scatter_all, gather_all, in_two_halves):
    print(f"{function.__name__:14} {await bytes_sent(function):>10,} bytes from each rank")

# %% [markdown]
# ### Point to point
#
# `pass_to(rank, value)` sends, and `receive()` takes what was sent. The sender goes on at once, but a mailbox holds
# one unread message: a second one waits until the first is read. You can send any object. In the picture
# **S** is a send, **R** a receive, and an arrow joins the two. (`judged=False`, because nothing is trained here, and
# `draw` would complain of that in red.)


# %%
async def talk(model):
    if model.rank == 0:
        await model.pass_to(1, "How much is the fish?")
        print("rank 0 hears:", await model.receive())
    else:
        print("rank 1 hears:", await model.receive())
        await model.pass_to(0, model.get_activation([3]))
    return model


conversation = await together(talk, ranks=2)
draw(conversation, judged=False)

# %% [markdown]
# ### When nobody can move
#
# A rank that waits for something that never comes would wait for ever. You are told instead, with who waits where
# and for whom:


# %%
async def impolite(model):
    if model.rank != 2:
        return await model.allreduce(grads[model.rank], 0)
    return None


try:
    await together(impolite)
except AssertionError as refusal:
    print(refusal)


# %% [markdown]
# ## A whole step on two ranks, the classic way
#
# This is how a schedule looks from end to end. It is correct, and it is the most wasteful one there is: both ranks do
# all the work. `draw` and `Model.check` work on the models that `gather` returns.


# %%
async def everybody_does_everything(model):
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer)
    activations[0] = model.get_activation(range(model.BATCHES))
    for layer in range(model.LAYERS):
        activations[layer + 1] = model.forward(layer, activations[layer], weights[layer])
    grad_activations[model.LAYERS] = model.loss(activations[model.LAYERS])
    for layer in reversed(range(model.LAYERS)):
        grad_weights[layer], grad_activations[layer] = model.backward(
            layer, activations[layer], grad_activations[layer + 1], weights[layer]
        )
        weights[layer], opt_states[layer] = model.update(layer, grad_weights[layer], weights[layer], opt_states[layer])
        model.set_final_weight(layer, weights[layer])
    return model


out = await together(everybody_does_everything, ranks=2)
Model.check(out)
draw(out)

# %% [markdown]
# ## `play` does all of that in one call
#
# In the puzzles one cell runs every rank, judges, draws and shows how you did. Here is a first try at puzzle 0 which
# goes wrong. You see the message, your line, and how far it went:


# %%
def first_try(model):
    weights, opt_states, activations, *_ = model.storage()
    weights[0], opt_states[0] = model.load_weights(0)
    activations[0] = model.get_activation(range(model.BATCHES))
    activations[1] = model.forward(0, activations[0], weights[0])
    activations[2] = model.forward(1, activations[1], weights[0])


await play("basic", first_try)

# %% [markdown]
# That is everything you need. Open **01_puzzles**, and have fun.
