# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Training Puzzles
#
# How do you train a model that is too slow for one device, or too large? Eight puzzles lead from a single device to a
# pipeline of sharded stages. In each, you complete one function between two marks. Run its cell, then the cell with
# `play` below it. That runs every rank, judges and draws the schedule, and says what to do next. A run takes
# milliseconds, so try things.
#
# - One star: the result is correct. Two: it meets both targets. Three: no schedule that we know beats it.
# - Targets are limits: `< 67` timesteps is met by 66.9, and not by 67.
# - Everything in the five dictionaries is memory, and so is a value that you keep elsewhere and use later.
# - New here? **00_tour** shows all the pieces, with pictures.
#
# To play in a file instead, see `puzzles start`. To run everything yourself with `asyncio.gather`, `draw` and
# `Model.check`, see the end of the tour.

# %% [markdown]
# {setup}

# %%
from lib import Model, WeightGrad
from puzzles import play

# %% [markdown]
# # One device

# %% [markdown]
# {puzzle: basic}

# %% [markdown]
# ### When does it make sense?
#
# Whenever everything fits: nothing has to be sent, and no rank ever waits. But look at how much has to fit. At the peak
# of the reference solution, three fifths of the memory are activations and their gradients, and this model has just two
# layers and four batches. With sixteen batches the same schedule needs 2.8 times the memory.

# %% [markdown]
# {puzzle: grad_accum}

# %% [markdown]
# ### When does it make sense?
#
# When a single batch fits, but not all of them together. The peak is a quarter lower than before, in the same 16.5
# steps, and it no longer grows: with sixteen batches it is still 1,966,080 elements. On a real device the price is that
# small batches use the hardware less efficiently. Our clock charges each batch the same, so it does not show this.

# %% [markdown]
# # Many devices, one model on each

# %% [markdown]
# {puzzle: ddp}

# %% [markdown]
# ### When does it make sense?
#
# When the model, with its optimizer state and gradients, fits on every device. This is the most common case. Four
# devices finish in 5.1 steps what took one device 16.5, so 3.2 times as fast. The updates and the all-reduces keep it
# from being four times as fast. Each rank sends 3,145,728 bytes, 1.5 times the size of the gradient, and that hardly
# grows with the number of ranks. The memory for the model does not shrink: four ranks keep four copies of every weight.

# %% [markdown]
# # Sharded weights

# %% [markdown]
# {puzzle: wsdp}

# %% [markdown]
# ### When does it make sense?
#
# Data parallel training of this model of six layers, as you wrote it for `ddp`, would need 4,980,736 elements on every
# rank; this needs 2,752,512. The price is communication: each rank sends twice the bytes. Real systems rarely stop
# here, because the step to the next puzzle costs nothing and saves more.

# %% [markdown]
# {puzzle: fsdp}

# %% [markdown]
# ### When does it make sense?
#
# When the model does not fit on one device and the network is fast. Compared with `ddp` on the same six layers, the
# peak falls from 4,980,736 to 2,359,296 elements, and each rank sends 1.5 times the bytes: the weights are gathered
# twice and the gradients scattered once. ZeRO's paper derives the same factor. Each rank still stores the activations
# of its own batch for all layers. They are not sharded, and often they are what fills the device. Then recomputing them
# helps, or the idea of the next puzzle.

# %% [markdown]
# # The weights stay, the activations move

# %% [markdown]
# {puzzle: pipeline}

# %% [markdown]
# ### When does it make sense?
#
# Almost never in this form: 74% of the time is idle. But see how little is sent. A rank in the middle sends 4,194,304
# bytes, an activation one way and a gradient the other, no matter how large the weights are. `fsdp` on this model and
# these ranks would send 18,874,368. That is why pipelines run between machines, where the links are slow.

# %% [markdown]
# {puzzle: gpipe}

# %% [markdown]
# ### When does it make sense?
#
# When a model spans machines, and there are many more microbatches than stages. With four microbatches 43% of the time
# is idle; with sixteen it is 18%, and with thirty-two 12%. Memory grows with the number of microbatches, because all of
# them are in flight when backward begins. One forward, one backward (1F1B) fixes that. Can you find a schedule here
# that needs less memory in less time? One is known, and `play` shows its figures.

# %% [markdown]
# # All together

# %% [markdown]
# {puzzle: pipeline_fsdp}

# %% [markdown]
# {chapter: classics}

# %% [markdown]
# ### When does it make sense?
#
# When nothing else fits: 966,656 elements on a rank, less than half of what `fsdp` needed (though the model has four
# layers and not six). But 49% of the time is idle, and the weights are sent to ranks that have no use for them: each
# rank sends twelve to thirteen million bytes in one step. Real systems give each kind of parallelism its own group of
# ranks. Shards are gathered within a group that shares fast links, and a pipeline runs between the groups.

# %% [markdown]
# # Which one should I use?
#
# There is no single best choice. It depends on the model and the batch, on the memory of a device, on the links, and on
# how much complexity you are willing to maintain. A rule of thumb:
#
# 1. It fits on one device: train there. Accumulate gradients if the batch does not fit.
# 2. It fits, and you want it faster: data parallelism.
# 3. It does not fit, and the links are fast: shard it, as in FSDP.
# 4. It does not fit, and the links between machines are slow: a pipeline between the machines, shards within them.
#
# **02_field** goes through ten ways to split, with one model and its costs. There is more to play: sharded optimizer
# states and recomputed activations (**03_memory**), communication that overlaps with computation (**05_overlap**),
# several kinds of parallelism at once (**07_clusters**), the sizes of real hardware (**08_microseconds**), layers and
# ranks that differ (**09_frontier**), and sequences that are split among ranks (**11_long_context**). `puzzles list
# schedule` names all chapters.
