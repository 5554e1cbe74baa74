"""A graph that came from a function of JAX, and JAX itself, if it is installed."""

from typing import Any

import numpy as np

from lib.extras import install_command
from lib.layout.errors import LayoutError
from lib.layout.layouts.device_matrix import DeviceMatrix
from lib.layout.layouts.pieces import Array

from .graph import Graph


class ImportedGraph(Graph):
    """A graph that came from a function of JAX, with the names of its arguments and results, and its constants."""

    def __init__(
        self, devices: int | None, mesh: DeviceMatrix | None, itemsize: int, uneven: bool | None = None
    ) -> None:
        super().__init__(devices, mesh, itemsize, uneven)
        self.arguments: tuple[str, ...] = ()
        """Names of the function's arguments, those within containers each on its own, in the order of JAX."""
        self.constants: dict[str, Array] = {}
        """Arrays that the function brings along, such as a mask or a scale. They are inputs of the graph."""

    def values(self, *arguments: Any) -> dict[str, Array]:
        """The values of all sources, given the function's arguments: what `run` and `on_engine` take.

        Raises:
            LayoutError: there are more or fewer arrays than the function takes.
        """
        leaves = jax_here().tree_util.tree_leaves(arguments)
        if len(leaves) != len(self.arguments):
            names = ", ".join(self.arguments)
            raise LayoutError(f"the function takes {len(self.arguments)} arrays, {names}; got {len(leaves)}")
        return {**dict(zip(self.arguments, map(np.asarray, leaves))), **self.constants}


def jax_here() -> Any:
    """The package jax, imported when it is first needed.

    Raises:
        LayoutError: it is not installed.
    """
    try:
        import jax
        import jax.extend
    except ImportError:
        raise LayoutError(f"from_jax needs jax, which is not installed: {install_command('jax')}") from None
    return jax
