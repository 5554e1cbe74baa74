"""`python -m tests.fuzz --seconds 60`: every target for as long, until the time is up. Ends with 1 after a finding.

A finding is printed with its seed: `python -m tests.fuzz --only trace --seed 1234 --seconds 0` shows it again.
"""

import sys
import traceback
import warnings
from argparse import ArgumentParser
from random import Random, SystemRandom
from time import monotonic

from .targets import TARGETS

SLOW = 5.0
"""Seconds in which an input must be done with: they are small."""


def main() -> int:
    """Fuzzes; 0 if nothing was found."""
    parser = ArgumentParser("python -m tests.fuzz")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=SystemRandom().randrange(10**9))
    parser.add_argument("--only", choices=TARGETS, action="append")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    begin = last = monotonic()
    spent = dict.fromkeys(given.only or TARGETS, 0.0)
    tried = dict.fromkeys(spent, 0)
    while last < begin + given.seconds or not all(tried.values()):
        name = min(spent, key=spent.__getitem__)  # as much time for each
        seed = given.seed + tried[name]
        problem = finding(name, seed)
        took, last = monotonic() - last, monotonic()
        if problem or took > SLOW:
            print(problem or f"{name} took {took:.1f} s")
            print(f"Found by: python -m tests.fuzz --only {name} --seed {seed} --seconds 0")
            return 1
        spent[name] += took
        tried[name] += 1
    print(f"Nothing found from seed {given.seed} on: {', '.join(f'{n:,} {name}' for name, n in tried.items())}.")
    return 0


def finding(name: str, seed: int) -> str:
    """The exception that a target raises for the input of this seed; empty if there is none."""
    try:
        TARGETS[name](Random(f"{name} {seed}"))
    except Exception:
        return traceback.format_exc()
    return ""


if __name__ == "__main__":
    sys.exit(main())
