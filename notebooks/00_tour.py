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
# send to whom. This tour shows every piece that you will use. Run the cells from top to bottom with Shift+Enter, then
# change something and run it again. You cannot break anything: an invalid call is refused, and the message says why.

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
# A `Model` represents one device, which we call a *rank*, and a model to train for one step. Ours has two layers, and
# the step is made of four microbatches, or *batches* for short.
#
# No numbers are multiplied here. Every value is a label. It records what it is, its layer and batches, and how much
# memory it takes. A schedule needs nothing else, and a run takes milliseconds.

# %%
model = Model(layers=2, batches=4)
weights, opt_states, activations, grad_activations, grad_weights = model.storage()

# %% [markdown]
# These five dictionaries are the memory of the device.
#
# | dictionary | holds |
# |---|---|
# | `weights` | the weights, which are trained |
# | `opt_states` | the optimizer state of each weight, such as its momentum |
# | `activations` | the input of each layer, in the forward pass |
# | `grad_activations` | the gradient of each layer's output, in the backward pass |
# | `grad_weights` | the gradients that the update needs |
#
# Load each layer's weight and optimizer state. The last line of the cell shows one of them.

# %%
for layer in range(model.LAYERS):
    weights[layer], opt_states[layer] = model.load_weights(layer)
weights[0]

# %% [markdown]
# The picture shows the network: a column for each layer, and slots between the columns for the activations. The
# weight fills its column because it is whole. Its size is shown below it: a layer is a square matrix of 512 x 512, so
# its weight has 262,144 elements. Its optimizer state has the same size, and so will its gradient.
#
# Now the input of the model, for batches 2 and 3 only:

# %%
activations[0] = model.get_activation([2, 3])
activations[0]

# %% [markdown]
# Half of the slot is filled, because two of the four batches are there. One batch of activations takes 131,072
# elements.
#
# ## Forward, loss, backward
#
# `forward` takes an activation through a layer. Store the result under the number of the layer that reads it next: the
# output of layer 0 is `activations[1]`.

# %%
for layer in range(model.LAYERS):
    activations[layer + 1] = model.forward(layer, activations[layer], weights[layer])
draw_group(activations)

# %% [markdown]
# At the end, `loss` turns an activation into a gradient. `backward` takes the gradient back through a layer. It also
# needs the layer's input from the forward pass, which is why you kept it. It returns two values: the gradient of the
# layer's weight, and the gradient for the previous layer.

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
# A value takes memory as long as it is in a dictionary. After backward, the activations and their gradients will not
# be read again, so delete them:

# %%
before = model.memory()
activations.clear()
grad_activations.clear()
print(f"{before:,} elements before, {model.memory():,} after")
model.status()

# %% [markdown]
# `del activations[0]` deletes a single one. Keeping a value in a local variable instead does not hide it: the referee
# sees when it is used, and counts it until then.
#
# ## What a gradient covers
#
# A weight gradient records the batches that it covers. These two have seen batches 2 and 3, as the little squares
# below show:

# %%
draw_group(grad_weights)

# %% [markdown]
# ## Reading an error message
#
# The update needs the gradient of the whole step. Ours covers only half of the batches, so it is refused:

# %%
try:
    model.update(0, grad_weights[0], weights[0], opt_states[0])
except AssertionError as refusal:
    print(refusal)

# %% [markdown]
# Read it from left to right. First comes the rank, the time on its clock, and the call. Then comes what is wrong with
# the arguments, and after that what to do next. The call had no effect: neither the clock nor the memory has changed.
#
# While exploring, you can fake the rest. `fake_grad` creates a gradient of the missing batches, and `+` adds the two.
# (In a puzzle, the referee refuses a fake gradient, unless it covers no batches, which means zero.)

# %%
for layer in range(model.LAYERS):
    grad_weights[layer] = grad_weights[layer] + model.fake_grad(layer, [0, 1])
grad_weights[0]

# %% [markdown]
# Now the gradient is complete, so the update succeeds. It returns a new weight and a new state; store both.
# `set_final_weight` marks a weight as the result for its layer.

# %%
for layer in range(model.LAYERS):
    weights[layer], opt_states[layer] = model.update(layer, grad_weights[layer], weights[layer], opt_states[layer])
    model.set_final_weight(layer, weights[layer])
report = Model.check([model])

# %% [markdown]
# ## How to read the timeline
#
# `draw` shows a run as a picture. Each rank has a lane, and time runs to the right. A box is an operation. Its width is
# the duration, its colour the layer. **F0** is the forward of layer 0, pale and pointing to the right, with its batches
# below. **B0** is its backward, darker and pointing to the left. **U0** is its update. The flag **L** is the loss,
# which takes no time. Where a lane is hatched, the rank is idle; the *bubble* is the share of idle time.
#
# Below the lanes is the memory of each rank by kind, and a red mark shows the peak. Hover over a box for details. The
# line at the top shows the figures that count for your score.

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
# of its operations starts, or at the end. Every puzzle sets a target for each. You get one star for a correct
# schedule, two if it meets both targets, and three if no schedule that we know beats it.

# %% [markdown]
# ## Several ranks
#
# From here on there are four ranks. Each has its own `Model`, and they share a `Dist`, through which they communicate.
# You write one function. It runs once on each rank, all at the same time, and `model.rank` is the number of the rank. A
# call that involves other ranks has to be awaited. Python's own `asyncio.gather` runs them:


# %%
async def together(function, ranks=4):
    dist = Dist(ranks)
    return await asyncio.gather(*(function(Model(rank, dist, layers=2, batches=4)) for rank in range(ranks)))


# %% [markdown]
# ### All-reduce: every rank gets the sum
#
# Each rank contributes the gradient of one batch. Afterwards, each has the gradient of all batches. In the picture, a
# box is a gradient, its filled part is what the rank holds, and the dots beside it are the batches that it covers.

# %% [markdown]
# {collective: allreduce}

# %%
grads = [WeightGrad(0, 2, {rank}, 4) for rank in range(4)]


async def reduce_all(model):
    return await model.allreduce(grads[model.rank], 0)


sums = await together(reduce_all)
draw_group({"rank 1, before": grads[1], "rank 1, after": sums[1]})

# %% [markdown]
# ### All-gather: every rank gets all the shards
#
# A weight can be cut into *shards*, equal parts that live on different ranks. `load_weights(layer, shard, total)`
# loads one. An all-gather joins them.

# %% [markdown]
# {collective: allgather}


# %%
async def gather_all(model):
    shard, _ = model.load_weights(0, model.rank, model.RANKS)
    return shard, await model.allgather(shard, 0)


pairs = await together(gather_all)
draw_group({"rank 1, before": pairs[1][0], "rank 1, after": pairs[1][1]})

# %% [markdown]
# ### Reduce-scatter: every rank gets a shard of the sum
#
# It is called `scatterreduce` here. The gradients are summed over the ranks as in an all-reduce, but each rank gets
# only the shard with its own number.

# %% [markdown]
# {collective: scatterreduce}


# %%
async def scatter_all(model):
    return await model.scatterreduce(grads[model.rank], 0)


scattered = await together(scatter_all)
draw_group({"rank 1, before": grads[1], "rank 1, after": scattered[1]})

# %% [markdown]
# If you gather those shards, you have the result of the all-reduce. So an all-reduce is a reduce-scatter followed by an
# all-gather, which will matter in `fsdp`. The next cell shows that the values are equal, and what each rank sends:
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
# `pass_to(rank, value)` sends a value, and `receive()` returns what was sent. The sender continues right away, but a
# mailbox holds only one unread message: a second send waits until the first message is read. You can send any object.
# In the picture, **S** is a send, **R** a receive, and an arrow connects them. (`judged=False` is needed because
# nothing is trained here; otherwise `draw` would report that in red.)


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
# ### Deadlocks
#
# A rank could wait forever for a message or a collective that never comes. Instead, you get an error that says which
# rank waits where, and for whom:


# %%
async def impolite(model):
    if model.rank != 2:
        return await model.allreduce(grads[model.rank], 0)
    return None


try:
    refused = await together(impolite)
except AssertionError as refusal:
    print(refusal)


# %% [markdown]
# ## A whole step on two ranks, with the classic interface
#
# This is a schedule from start to end. It is correct, but as wasteful as possible: both ranks do all the work. `draw`
# and `Model.check` work on the models that `gather` returns.


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
# ## `play` does all of this in one call
#
# In the puzzles, one cell runs every rank, judges and draws the run, and shows how you did. Here is a first try at
# `basic` that fails. You see the message, your line of code, and how far the run got:


# %%
def first_try(model):
    weights, opt_states, activations, *_ = model.storage()
    weights[0], opt_states[0] = model.load_weights(0)
    activations[0] = model.get_activation(range(model.BATCHES))
    activations[1] = model.forward(0, activations[0], weights[0])
    activations[2] = model.forward(1, activations[1], weights[0])


await play("basic", first_try)

# %% [markdown]
# That's everything you need. Open **01_puzzles**, and have fun.
