"""AnnotatedMoE: one annotation splits the dispatched tokens by experts; all other layouts follow from it."""

import numpy as np

from lib.engine import ShardedEngine
from lib.layout.spmd import Spmd, split


class AnnotatedMoE(ShardedEngine):
    def __init__(self, tokens, experts, capacity, model_dim, hidden_dim):
        mask = (4, tokens, experts, capacity)
        inputs = {"x": (4, tokens, model_dim), "dispatch": mask, "combine": mask}
        parameters = {"wi": (experts, model_dim, hidden_dim), "wo": (experts, hidden_dim, model_dim)}
        self.spmd = Spmd(self, self.program, inputs, parameters)

    def program(self, x, dispatch, combine, wi, wo):
        x, dispatch, combine = split(x, 0, 4), split(dispatch, 0, 4), split(combine, 0, 4)
        sent = np.einsum("GSEC,GSM->EGCM", dispatch, x)
        sent = split(sent, 0, 4)  # so the experts are split along a row too, and only their tokens move
        h = np.maximum(np.einsum("EGCM,EMH->EGCH", sent, wi), 0)
        back = np.einsum("EGCH,EHM->EGCM", h, wo)
        y = np.einsum("GSEC,EGCM->GSM", combine, back)
        return split(y, 0, 4)

    def load_checkpoint(self, params):
        self.spmd.load_checkpoint(params)

    def forward(self, pieces):
        return self.spmd.forward(pieces)

    def backward(self, grads):
        """Not called."""
