"""Hypothesis profiles: few examples, the same on every run, for `make test`; many new ones for `make test-all`.

Neither has a deadline, because machines may be busy, nor a database, because clones may be unwritable.

Hypothesis also tries constants that it reads in every module of the project. Examples would change with any line of
code, and parsing all modules takes seconds in each process of the tests.
"""

from hypothesis import settings
from hypothesis.internal.conjecture import providers

if hasattr(providers, "_get_local_constants"):
    providers._get_local_constants = lambda: providers._local_constants  # which are none

LETTERS = "aZ_ 0.\"'\\/{}[]:,#\n\t\x00\x7fäß\u0301中\u2028\ufeff\U0001f984"
"""Letters that writers and readers of text get wrong; of all of Unicode hypothesis makes a table first, in seconds."""

WHOLE = 100
"""Examples of a property that asks for no number, in the full profile."""

settings.register_profile("quick", max_examples=10, derandomize=True, deadline=None, database=None)
settings.register_profile("half", max_examples=WHOLE // 2, deadline=None, database=None, print_blob=True)
settings.register_profile("full", max_examples=WHOLE, deadline=None, database=None, print_blob=True)


def examples(number: int) -> settings:
    """So many in the full profile, and in another as many fewer as it has fewer than the full one; five at least."""
    return settings(max_examples=max(5, number * settings().max_examples // WHOLE))
