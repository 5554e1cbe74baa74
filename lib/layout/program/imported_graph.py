"""A graph that came from a function of JAX, and JAX itself, if it is installed."""

from typing import Any

import numpy as np

from lib.extras import install_command
from lib.layout.errors import LayoutError
from lib.layout.layouts.device_matrix import DeviceMatrix
from lib.layout.layouts.pieces import Array

from ..words import SAYS
from .graph import Graph

Place = tuple[int, ...]
"""A primitive of a traced function: its number, within a call also those of the calls around it."""


class ImportedGraph(Graph):
    """A graph that came from a function of JAX, with the names of its arguments and results, and its constants."""

    def __init__(
        self, devices: int | None, mesh: DeviceMatrix | None, itemsize: int, uneven: bool | None = None
    ) -> None:
        super().__init__(devices, mesh, itemsize, uneven)
        self.arguments: tuple[str, ...] = ()
        """Names of the function's arguments, those within containers each on its own, in the order of JAX."""
        self.structs: tuple[Any, ...] = ()
        """The function's arguments, as JAX was given them."""
        self.constants: dict[str, Array] = {}
        """Arrays that the function contains, such as a mask or a scale. They are inputs of the graph."""
        self.lines: dict[str, str] = {}
        """By operator: the line of the function that it came from, as 'model.py:12 (step)'."""
        self.places: dict[str, Place] = {}
        """By operator outside of loops: the primitive of the traced function that has its output."""

    def values(self, *arguments: Any) -> dict[str, Array]:
        """The values of all sources, given the function's arguments: what `run` and `on_engine` take.

        Raises:
            LayoutError: there are more or fewer arrays than the function takes.
        """
        leaves = jax_here().tree_util.tree_leaves(arguments)
        if len(leaves) != len(self.arguments):
            names = ", ".join(self.arguments)
            raise LayoutError(f"the function takes {len(self.arguments)} arrays, {names}; got {len(leaves)}")
        keys = [is_key(getattr(leaf, "dtype", None)) for leaf in leaves]
        arrays = (jax_here().random.key_data(leaf) if yes else leaf for leaf, yes in zip(leaves, keys))
        return {**dict(zip(self.arguments, map(np.asarray, arrays))), **self.constants}


def jax_here() -> Any:
    """The package jax, imported when it is first needed."""
    try:
        import jax
        import jax.extend
    except ImportError:
        raise LayoutError(SAYS("no JAX", install=install_command("jax"))) from None
    return jax


COLLECTIVES = ("psum", "psum2", "all_gather", "psum_scatter", "ppermute", "all_to_all", "shard_map", "axis_index")
ONE_DEVICE = "import the function for one device, without collectives: the plan adds them"
REAL = "a graph has real numbers only; keep the real and the imaginary parts in arrays of their own"


def is_key(dtype: Any) -> bool:
    """True for keys of random numbers."""
    jax = jax_here()
    return dtype is not None and bool(jax.numpy.issubdtype(dtype, jax.dtypes.prng_key))


def is_real(dtype: Any) -> bool:
    """False for complex numbers, keys of random numbers, and what is no array."""
    numpy = jax_here().numpy
    return dtype is not None and any(numpy.issubdtype(dtype, kind) for kind in (np.bool_, np.integer, np.floating))
