"""The streams of an inference loop, as types that can be subscripted: `Reader[ArrayLike]`.

`io` has types with these names only since Python 3.14.
"""

from collections.abc import Iterator
from typing import Protocol, TypeVar

Item = TypeVar("Item", covariant=True)
Output = TypeVar("Output", contravariant=True)


class Reader(Protocol[Item]):
    """A stream of inputs."""

    def __iter__(self) -> Iterator[Item]: ...


class Writer(Protocol[Output]):
    """A stream of outputs."""

    def write(self, item: Output, /) -> object: ...
