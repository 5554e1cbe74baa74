# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Memory
#
# What does a rank keep that others keep too, that it could compute again, or that it could put elsewhere? Each of these
# puzzles removes one kind of it, and each has a price. Play **01_puzzles** first: `ddp` and `fsdp` are where we start.
#
# A puzzle says what is new in its setting, such as a price or a size, in a table below its task. The rest is as in the
# classics.

# %% [markdown]
# {setup}

# %%
from lib import Model
from puzzles import play

# %% [markdown]
# {chapter: memory}
