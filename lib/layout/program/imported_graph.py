"""A graph that came from a function of JAX, and JAX itself, if it is installed."""

from collections.abc import Mapping
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
        """Arrays that the function contains, such as a mask or a scale. They are inputs of the graph."""

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
    """The package jax, imported when it is first needed."""
    try:
        import jax
        import jax.extend
    except ImportError:
        raise LayoutError(f"from_jax needs jax, which is not installed: {install_command('jax')}") from None
    return jax


OUTSIDE = "compute it outside and give the function the result as an argument"
RANDOM = "draw the random numbers outside and give them to the function as an argument"
PARTS = "keep the real and the imaginary parts in arrays of their own"
UNROLL = "write the loop in Python, so that its steps are traced one by one"
NEXT: Mapping[str, str] = {
    "": f"{OUTSIDE}, or write it with matmul, einsum, softmax and elementwise functions",
    "while": UNROLL,
    "cond": "choose the branch in Python, or compute both and use jnp.where",
    **dict.fromkeys(("sort", "argmax", "argmin", "approx_top_k"), OUTSIDE),
    **dict.fromkeys(
        ("psum", "all_gather", "psum_scatter", "ppermute", "all_to_all", "shard_map", "axis_index"),
        "import the function for one device, without collectives: the plan adds them",
    ),
}
"""What to do instead, by primitive; '' for all others."""
REAL = "a graph has real numbers only"


def instead(name: str, dtype: Any = None) -> str:
    """What to do instead of a primitive, or of one that makes values of a type."""
    kinds = {"key": RANDOM, "com": PARTS}
    return kinds.get(str(dtype)[:3]) or NEXT.get(name, NEXT[""])


def is_real(dtype: Any) -> bool:
    """False for complex numbers, keys of random numbers, and what is no array."""
    numpy = jax_here().numpy
    return dtype is not None and any(numpy.issubdtype(dtype, kind) for kind in (np.bool_, np.integer, np.floating))
