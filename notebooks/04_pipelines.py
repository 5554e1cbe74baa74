# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Pipelines
#
# In **01_puzzles**, `gpipe` filled most of the bubble and kept the activations of all batches. These six puzzles tell
# how it went on: first without that memory, then with a shorter bubble, then with weights in shards, and at last
# without a bubble. Each starts from what the one before leaves to be wished for, so play them in order.
#
# Here a forward takes 1 step and a whole backward 2, and messages are free. A puzzle says what is new in its setting,
# such as a price or a size, in a table below its task.

# %% [markdown]
# {setup}

# %%
from lib import Model
from puzzles import play

# %% [markdown]
# {chapter: pipelines}
