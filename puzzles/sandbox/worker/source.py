"""Parses a player's file: the definitions in it, and the code to run. Nothing of it is executed here."""

import ast
import warnings
from collections.abc import Collection, Iterable
from types import CodeType
from typing import Any

from puzzles.failure import UNPARSABLE, Failure, UnreadableError, of_source

from .compiled import CompiledCode
from .notebook_cells import NotebookCell, is_notebook, read_cells, with_plain_newlines, without_magics
from .notebook_filter import DEFINITION, GAME_PACKAGES, KeptStatements, Skipped, bound_as, bound_by, bound_names
from .sketch import Sketch, sketch

KEPT = "of a notebook only imports, definitions and pure assignments are kept, so compute it inside a function"


class SubmissionCode:
    """A submission, parsed and compiled."""

    def __init__(self, name: str, text: str, slugs: Collection[str]) -> None:
        """`slugs` are puzzles that may be asked for."""
        self.name = name
        self.cells: list[NotebookCell] = []
        text = with_plain_newlines(text)
        self.code: CodeType | None = None
        self.problem: Failure | None = None
        """Reason why nothing in the file can be used."""
        self.broken: dict[str, Failure] = {}
        """By puzzle, the error in the cell that seems to define it."""
        self.lines: dict[str, int] = {}
        """The names that the file binds, with their last lines; '*' for a star import."""
        self.sketches: dict[str, Sketch] = {}
        """By puzzle, the sketch of its definition."""
        self.idle: dict[str, int] = {}
        """The packages of imports that nothing uses, which are left out, with their lines."""
        self.left_out: dict[str, Skipped] = {}
        """By name, what the file binds and this code does not."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.cells = read_cells(name, text)
                body = self._notebook(slugs) if is_notebook(name, text) else self._script(text, slugs)
                body = self._compiling(body, slugs)
                tree = ast.Module(body, [])
                self.code = compile(tree, name, "exec", dont_inherit=True)
            for bound, line in bound_by(body):
                self.lines[bound] = max(line, self.lines.get(bound, 0))
            definitions = _definitions(body)
            self.sketches = {slug: sketch(definitions[slug]) for slug in slugs if slug in definitions}
        except (*UNPARSABLE, UnreadableError) as why:
            self.problem = of_source(why)

    def survey(self) -> dict[str, Any]:
        broken = {slug: list(failure) for slug, failure in self.broken.items()}
        problem = None if self.problem is None else list(self.problem)
        cells = self.cells if self.name.endswith(".ipynb") else []  # of a script, the grader has the lines
        return {
            "problem": problem,
            "broken": broken,
            "lines": self.lines,
            "sketches": self.sketches,
            "idle": self.idle,
            "cells": cells,
        }

    @property
    def compiled(self) -> CompiledCode:
        """All that running it takes."""
        return CompiledCode(self.name, self.lines, self.left_out, self.code)

    def _notebook(self, slugs: Collection[str]) -> list[ast.stmt]:
        """Imports that are used, definitions, and pure assignments. The last definition of a name wins."""
        statements = KeptStatements(slugs)
        for first, text, _ in self.cells:
            try:
                tree = self._tree(text)
            except UNPARSABLE as why:
                failure = of_source(why)
                failure = failure._replace(line=failure.line + first - 1 if failure.line else first)
                self.broken.update((slug, failure) for slug in slugs if looks_defined(slug, text.splitlines()))
                continue
            for node in tree.body:
                statements.see(ast.increment_lineno(node, first - 1))
                self.broken.pop(getattr(node, "name", ""), None)  # defined again, and well
        for name, (line, reason) in statements.left_out.items():
            self.left_out[name] = Skipped(line, f"it was left out because {reason}; {KEPT}")
            if name in slugs and "it calls" in reason:
                advice = f"this defines {name}, but it was left out because {reason}; use 'def' or 'class' instead"
                self.broken[name] = Failure("crash", advice, line)
        return self._without_idle_imports(statements.kept, ())

    def _script(self, text: str, slugs: Collection[str]) -> list[ast.stmt]:
        """All statements but the imports that nothing uses. An import of a puzzle's name may be the solution."""
        return self._without_idle_imports(ast.parse(text, self.name).body, slugs)

    def _without_idle_imports(self, body: list[ast.stmt], slugs: Collection[str]) -> list[ast.stmt]:
        """Drops imports that no definition uses, and that bind none of `slugs`: drawing packages may be missing, or
        slow to load."""
        others = [node for node in body if not isinstance(node, ast.Import | ast.ImportFrom)]
        used = {*slugs, *(n.id for node in others for n in ast.walk(node) if isinstance(n, ast.Name))}
        kept: list[ast.stmt] = []
        for node in body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                home = getattr(node, "module", "") or ""
                lasting = home in ("__future__", *GAME_PACKAGES)
                names = [a for a in node.names if lasting or bound_as(a) in used or a.name == "*"]
                if home in ("drawing", "chalk") and names[:1]:
                    names = [a for a in names if a.name != "*"]  # pictures have no part in a schedule
                packages = (
                    [home] if home else [a.name for a in node.names if isinstance(node, ast.Import) and a not in names]
                )
                if not (home and names):
                    self.idle.update((package.partition(".")[0], node.lineno) for package in packages)
                node.names = names
                if not names:
                    continue
            kept.append(node)
        return kept

    def _compiling(self, body: Iterable[ast.stmt], slugs: Collection[str]) -> list[ast.stmt]:
        """The statements without the definitions that Python refuses, so that the others can be graded."""
        kept: list[ast.stmt] = []
        refused: dict[str, Failure] = {}
        for node in body:
            name = node.name if isinstance(node, DEFINITION) else ""
            failure = self._refusal(node, slugs) if name else None
            if failure is None:
                kept.append(node)
                refused.pop(name, None)
            elif name in slugs:
                refused[name] = failure
            else:
                self.left_out[name] = Skipped(node.lineno, failure.sentence)
        self.broken = {**refused, **self.broken}
        return kept

    def _refusal(self, definition: ast.stmt, slugs: Collection[str]) -> Failure | None:
        """The reason why Python does not compile a definition, if it does not."""
        try:
            compile(ast.Module([definition], []), self.name, "exec", dont_inherit=True)
        except SyntaxError as why:
            function = _function_that_awaits(definition)
            if function is None:
                return of_source(why)
            also = "" if function.name in slugs else ", and await its calls"
            sentence = f"{function.name} awaits, so it must be async: write 'async def {function.name}'{also}"
            return Failure("syntax", sentence, function.lineno)
        return None

    def _tree(self, text: str) -> ast.Module:
        """The syntax tree of a cell; if it is not valid Python, without IPython's lines."""
        flags = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        try:
            tree: ast.Module = compile(text, self.name, "exec", flags, dont_inherit=True)
        except SyntaxError:
            tree = compile(without_magics(text), self.name, "exec", flags, dont_inherit=True)
        return tree


def looks_defined(name: str, lines: Iterable[str]) -> bool:
    """True if a line looks as if it bound the name, in text that may not be valid Python."""
    starts = [f"{word}{name}{end}" for word in ("def ", "async def ", "class ") for end in "( :"]
    return any(line.startswith((*starts, f"{name} =")) for line in lines)


def _definitions(body: Iterable[ast.stmt]) -> dict[str, ast.stmt]:
    """The function or class that each name is bound to, also by `basic = my_basic`."""
    found: dict[str, ast.stmt] = {}
    for node in body:
        for name in bound_names(node):
            match node:
                case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                    found[name] = node
                case ast.Try(body=[ast.Assign(value=ast.Name(id=other))]) | ast.Assign(value=ast.Name(id=other)) if (
                    other in found
                ):
                    found[name] = found[other]
                case _:
                    found.pop(name, None)
    return found


def _function_that_awaits(definition: ast.AST) -> ast.FunctionDef | None:
    """The first function that awaits without being async."""
    for function in ast.walk(definition):
        if isinstance(function, ast.FunctionDef):
            to_visit = list[ast.AST](function.body)
            while to_visit:
                match node := to_visit.pop():
                    case ast.Await() | ast.AsyncFor() | ast.AsyncWith():
                        return function
                    case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef() | ast.Lambda():
                        pass
                    case _:
                        to_visit += ast.iter_child_nodes(node)
    return None
