"""Dimension labels: a letter for each dimension of an operator; dimensions with the same letter are split alike."""

from collections.abc import Sequence

from lib.layout.errors import LayoutError

Letters = tuple[str, ...]


def in_order(n: int) -> Letters:
    """Letters for n dimensions that an operator preserves."""
    return tuple("ijlmnopq"[:n])


def of_reshape(before: tuple[int, ...], after: tuple[int, ...]) -> tuple[Letters, Letters, list[str]]:
    """Letters before and after a reshape, and the free ones.

    Both shapes are divided into groups of equal products; the first dimensions of a group share a free letter.
    Dimensions of size 1 belong to no group.
    """
    left, right = [f"s{i}" for i in range(len(before))], [f"t{i}" for i in range(len(after))]
    free: list[str] = []
    many = [[dim for dim, size in enumerate(shape) if size > 1] for shape in (before, after)]
    i = j = 0
    while i < len(many[0]):
        a, b = before[many[0][i]], after[many[1][j]]
        shared = f"g{len(free)}"
        free.append(shared)
        left[many[0][i]] = right[many[1][j]] = shared
        i, j = i + 1, j + 1
        while a != b:
            if a < b:
                a, i = a * before[many[0][i]], i + 1
            else:
                b, j = b * after[many[1][j]], j + 1
    return tuple(left), tuple(right), free


def of_einsum(
    name: str, spec: str, shapes: Sequence[tuple[int, ...]]
) -> tuple[tuple[Letters, ...], Letters, dict[str, int]]:
    """Of "bd,df->bf": the letters of each input and of the output, and the size of each.

    Raises:
        LayoutError: the text is malformed, or does not fit the shapes.
    """
    terms, arrow, output = str(spec).replace(" ", "").partition("->")
    inputs = terms.split(",")
    if not arrow or not all(term.isalpha() for term in (*inputs, output) if term):
        raise LayoutError(f"{name}: an einsum has one letter per dimension, such as 'bd,df->bf'; got {spec!r}")
    if len(inputs) != len(shapes):
        raise LayoutError(f"{name}: {spec!r} is for {len(inputs)} inputs; got {len(shapes)}")
    sizes: dict[str, int] = {}
    for term, shape in zip(inputs, shapes):
        if len(term) != len(shape):
            raise LayoutError(f"{name}: '{term}' in {spec!r} has {len(term)} letters for an input of shape {shape}")
        for letter, size in zip(term, shape):
            if sizes.setdefault(letter, size) != size:
                raise LayoutError(
                    f"{name}: '{letter}' in {spec!r} is {sizes[letter]} in one input and {size} in another"
                )
    for term in (*inputs, output):
        twice = [letter for letter in term if term.count(letter) > 1]
        if twice:
            raise LayoutError(f"{name}: '{term}' in {spec!r} has '{twice[0]}' twice; a diagonal cannot be split")
    missing = [letter for letter in output if letter not in sizes]
    if missing:
        raise LayoutError(f"{name}: '{missing[0]}' in the output of {spec!r} does not occur in any input")
    return tuple(map(tuple, inputs)), tuple(output), sizes
