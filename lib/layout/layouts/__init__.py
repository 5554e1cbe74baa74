"""Tensor layouts: device matrix, mesh, and which piece of a tensor each device holds."""
