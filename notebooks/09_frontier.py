# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # The frontier
#
# The schedules of recent years take the textbook pipelines apart. Layers, ranks and microbatches are no longer alike;
# memory becomes a dial. The puzzles build on `ddp` and `grad_accum` from **01_puzzles** and on `one_f_one_b` and `zb_v`
# from **04_pipelines**.

# %% [markdown]
# {setup}

# %%
from lib import Model
from puzzles import play

# %% [markdown]
# {chapter: frontier}
