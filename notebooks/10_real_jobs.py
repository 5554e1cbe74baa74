# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Real jobs
#
# What would you do with these GPUs on Monday? Each puzzle is a real model, a batch and a cluster. You return a `Split`
# and what you predict of it. The verdict shows where the time of a step and the memory of the fullest GPU go, and which
# change would help most.
#
# Work out by hand, before you play, how many bytes one GPU holds and what goes over which link. The background of each
# puzzle does so in six lines.

# %% [markdown]
# {setup}

# %%
from lib.planning import Job, Prediction, Split
from puzzles import play

# %% [markdown]
# {chapter: plan}
