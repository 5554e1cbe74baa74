"""Functions of JAX that no graph can hold, and alternatives to them."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from .imported_graph import jax_here

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
