# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Long context
#
# A sequence of many thousand tokens fills the memory of a rank, and two of them do not fill a pipeline. Here several
# ranks share the tokens of one sequence. Attention is what makes that hard, since every token reads all tokens before
# it. The puzzles build on `one_f_one_b` from **04_pipelines** and `ddp_overlap` from **05_overlap**.

# %% [markdown]
# {setup}

# %%
from lib import Model
from puzzles import play

# %% [markdown]
# {chapter: long_context}
