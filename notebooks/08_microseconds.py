# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # In microseconds
#
# The other chapters count in steps. Here a clock counts microseconds, on machines like those that large models are
# trained on: GPUs like an H100, NVLink inside a machine, InfiniBand between machines, and PCIe to the host. Every
# price follows from the size of what is computed or sent, so each puzzle asks for a number. Predict it first; then
# write the schedule, and measure.
#
# | | speed | latency |
# |---|---|---|
# | matrix products | 400 TFLOP/s | |
# | NVLink | 450 GB/s in each direction | 2 us a hop |
# | InfiniBand | 50 GB/s for each GPU | 5 us a hop |
# | PCIe | 55 GB/s in each direction | |
#
# An element has two bytes, and updates are free. On real tensors (`puzzles run`), add `--small`: the full ones take
# up to 12 GB. The puzzles build on `ddp_overlap` and `fsdp_prefetch` from **05_overlap**, on `tensor_parallel` from
# **06_splitting**, and on `checkpoint` and `offload` from **03_memory**. The answer to each prediction is below the
# hints of its puzzle.

# %% [markdown]
# {setup}

# %%
from lib import Model
from puzzles import play

# %% [markdown]
# {chapter: microseconds}
