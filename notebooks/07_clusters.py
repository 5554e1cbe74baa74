# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Clusters
#
# A cluster has fast links and slow ones, and a large model needs more than one kind of parallelism. These puzzles put
# each kind on the links that can carry it. They build on `fsdp` and `gpipe` from **01_puzzles**.
#
# A puzzle says what is new in its setting, such as a price or a mesh, in a table below its task.

# %% [markdown]
# {setup}

# %%
from lib import Model
from puzzles import play

# %% [markdown]
# {chapter: clusters}
