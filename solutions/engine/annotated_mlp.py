"""AnnotatedMLP: weights split along both axes of the mesh; the annotation of h decides which device computes what."""

import numpy as np

from lib.engine import ShardedEngine
from lib.layout.spmd import Spmd, mesh, mesh_split


class AnnotatedMLP(ShardedEngine):
    def __init__(self, batch, model_dim, hidden_dim):
        self.mesh = mesh(data=2, model=2)
        parameters = {"w0": (model_dim, hidden_dim), "w1": (hidden_dim, model_dim)}
        self.spmd = Spmd(self, self.program, {"x": (batch, model_dim)}, parameters, self.mesh)

    def program(self, x, w0, w1):
        x = mesh_split(x, self.mesh, (("data", "model"), None))
        w0 = mesh_split(w0, self.mesh, ("data", "model"))
        w1 = mesh_split(w1, self.mesh, ("model", "data"))
        h = np.maximum(np.einsum("bd,df->bf", x, w0), 0)
        # Half of the rows meet half of each weight here; the sum over `model` is scattered to where y belongs.
        h = mesh_split(h, self.mesh, ("data", "model"))
        y = np.einsum("bf,fd->bd", h, w1)
        return mesh_split(y, self.mesh, (("data", "model"), None))

    def load_checkpoint(self, params):
        self.spmd.load_checkpoint(params)

    def forward(self, x):
        return self.spmd.forward({"x": x})

    def backward(self, grads):
        """Not called."""
