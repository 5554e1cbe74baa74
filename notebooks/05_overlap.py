# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Overlap
#
# In **01_puzzles** a rank waits while it communicates. Here communication runs beside computation: a call starts it and
# returns a handle, and `await` waits for the end. What counts is when you call, in which order, and how long you can do
# without the result.
#
# A puzzle says what is new in its setting, such as a price or a size, in a table below its task.

# %% [markdown]
# {setup}

# %%
from lib import Model
from puzzles import play

# %% [markdown]
# {chapter: overlap}
