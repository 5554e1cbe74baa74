"""`python -m tests.mutate`: tries the mutations of the table, and fails if one survives without a reason. With
`--records` it tries mutants of the references, and fails if one beats a record."""

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from .table import Mutation, TableError, read_table
from .trying import Copy, Trial, copy_of

ROOT = Path(__file__).parents[2]
TABLE = Path(__file__).with_name("mutations.toml")
SHOWN = 3
"""Names of tests that are shown of those that catch a mutation."""


def tried(mutations: Sequence[Mutation], root: Path) -> int:
    """Prints which quick tests catch each mutation; returns the exit code."""
    survivors: list[Mutation] = []
    counts: Counter[str] = Counter()
    with copy_of(root) as folder:
        copy = Copy(folder)
        if problem := _problem_without_mutation(mutations, copy):
            print(problem)
            return 2
        for number, mutation in enumerate(mutations, 1):
            with copy.mutated(mutation):
                trial = copy.failing(mutation.tests)
            if trial.problem:
                print(f"{mutation.file}: {mutation.words}: {trial.problem}")
                return 2
            kind = "caught" if trial.is_caught else "excused" if mutation.survives else "survives"
            counts[kind] += 1
            survivors += [mutation] * (kind == "survives")
            print(f"{number:3} of {len(mutations)} {_said(mutation, trial)}", flush=True)
    print(
        f"{len(mutations)} mutations: {counts['caught']} caught, {counts['excused']} survive for a reason, "
        f"{len(survivors)} survive without one."
    )
    for mutation in survivors:
        print(
            f"  {mutation.file}: {mutation.words}\n"
            "    write a test that names the rule, or give the reason in `survives`"
        )
    return bool(survivors)


def _problem_without_mutation(mutations: Sequence[Mutation], copy: Copy) -> str:
    """Why nothing can be learnt, where a related test fails already; empty if all pass."""
    tests = sorted({test for mutation in mutations for test in mutation.tests})
    trial = copy.failing(tests, patience=3600)
    if trial.problem or trial.hung:
        return trial.problem or "the tests hang without a mutation"
    if trial.failed:
        return "These tests fail without a mutation; make them pass first:\n  " + "\n  ".join(trial.failed)
    print(f"The related tests pass without a mutation ({trial.seconds:.0f} s).", flush=True)
    return ""


def _said(mutation: Mutation, trial: Trial) -> str:
    place = f"{mutation.file}: {mutation.words}"
    if trial.hung:
        return f"caught: the tests hang  {trial.seconds:4.0f} s  {place}"
    if not trial.failed:
        reason = f" because {mutation.survives}" if mutation.survives else ""
        return f"SURVIVES{reason}  {trial.seconds:4.0f} s  {place}"
    names = [test.rpartition("/")[2] for test in trial.failed[:SHOWN]]
    more = ["..."] if len(trial.failed) > SHOWN else []
    stale = "\n    its reason to survive is outdated: remove it" if mutation.survives else ""
    return (
        f"caught by {len(trial.failed):3} in {len(trial.files):2} files  {trial.seconds:4.0f} s  {place}\n"
        f"    {', '.join([*names, *more])}{stale}"
    )


def main(arguments: Sequence[str] | None = None, root: Path = ROOT, table: Path = TABLE) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutate", description=__doc__)
    parser.add_argument("only", nargs="*", help="try only mutations whose file or words have one of these")
    parser.add_argument("--records", action="store_true", help="hunt for records, of the named puzzles or of all")
    parser.add_argument("--list", action="store_true", help="check the table and print it; try nothing")
    options = parser.parse_args(arguments)
    if options.records:
        from .records import hunt  # here, since the table needs no puzzle

        return hunt(options.only)
    try:
        mutations = read_table(table, root)
    except TableError as why:
        print(why)
        return 2
    if options.only:
        mutations = [m for m in mutations if any(word in f"{m.file} {m.words}" for word in options.only)]
    if options.list or not mutations:
        for mutation in mutations:
            print(f"{mutation.file}: {mutation.words}")
        print(f"{len(mutations)} mutations.")
        return 0 if mutations else 2
    return tried(mutations, root)


if __name__ == "__main__":
    sys.exit(main())
