# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Splitting a layer
#
# In **01_puzzles**, ranks shared out batches and layers. Here they work on the same layer at the same time, and share
# its weights, its tokens or its experts. So a single batch gets faster, and what it needs fits on several ranks.
#
# A puzzle says what is new in its setting, such as a price or a size, in a table below its task.

# %% [markdown]
# {setup}

# %%
from lib import Model
from puzzles import play

# %% [markdown]
# {chapter: splitting}
