"""Reads a player's file without running it: cells, statements, definitions, and the compiled code that a worker runs.

A file is a notebook, a script of jupytext, or a script. It is split into cells of code; headers and metadata are passed
over, and the work grows with the length of the text alone. Of a script all statements are kept but imports that nothing
uses. Of a notebook only imports, definitions, and assignments that are pure are kept: pure ones use only names that are
kept, and call only what `PURE_CALLS` lists. Everything else, such as a run of the schedule, would cost time or do harm.
What is left out is remembered with the reason, for the message on a name that is missing then.

Nothing is decided by running code, which a grader of notebooks could do to learn what a cell has changed: a cell may
wait for ever. A statement that cannot be judged by its syntax is left out instead, with a sentence that says so.
"""

import ast
import builtins
import json
import marshal
import re
import sys
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from copy import deepcopy
from hashlib import sha256
from types import CodeType
from typing import Any, NamedTuple, Self

from puzzles.failure import UNPARSABLE, Failure, UnreadableError, of_crash, of_source

# --- Cells ---


MAX_CODE = 4_000_000
"""Characters of code in a file, and of a script's comments."""

MAX_LINES = 2_000_000
MAX_CELLS = 1_000

MAX_SEARCHED = 1 << 20
"""Characters in which the first cell of a script is searched for."""

JUPYTEXT_HEADER = re.compile(r"^# ---\n(?:# .*\n|#\n)*?# *jupyter:", re.MULTILINE)
PERCENT_MARK = re.compile(r"^# %%(?=[ \[\r\n]|$).*\n?", re.MULTILINE)
LIGHT_MARK = re.compile(r"^# (?:\+(?= |$)|-$).*\n?", re.MULTILINE)
NO_CODE = re.compile(r"\[(?:markdown|md|raw)\]")

OTHER_LANGUAGE = re.compile(r"\s*%%(?!time|capture|prun)")
"""The first line of a cell in another language, or of a file to write."""

MAGIC = re.compile(
    r"""\s*(?: %{1,3}[a-zA-Z]                                     # %matplotlib inline
             | [!?] \s* [A-Za-z.~$\\/{}]                          # !pip install, ?help
             | \S+\?\s*$                                          # help?
             | [A-Za-z_]\w* \s* = \s* (?:%{1,3}|!)[a-zA-Z]        # files = !ls
             | (?:cat|cd|copy|cp|ddir|echo|ldir|ls|mkdir|mv|ren|rm|rmdir)(?:\s*$|\s[^=,]) )""",
    re.VERBOSE,
)
"""A line for IPython, not for Python."""


class NotebookCell(NamedTuple):
    """A cell of code: its first line among all lines of code, its text, and its number in the notebook, from 1."""

    first_line: int
    text: str
    number: int = 1


def is_notebook(name: str, text: str) -> bool:
    """True for a notebook, and for a script that jupytext would open as one."""
    start = text[:MAX_SEARCHED]
    return name.endswith(".ipynb") or bool(PERCENT_MARK.search(start) or JUPYTEXT_HEADER.match(start))


def read_cells(name: str, text: str) -> list[NotebookCell]:
    """Returns the cells of code in a file, whose lines end as Python counts them."""
    if name.endswith(".ipynb"):
        cells = list(_placed(_of_ipynb(text)))
    else:
        require_few(text)
        cells = list(_of_script(text)) if is_notebook(name, text) else [NotebookCell(1, text)]
    if len(cells) > MAX_CELLS:
        raise _too_much(len(cells), "cells", MAX_CELLS)
    return cells


def require_few(code: str) -> None:
    """Refuses code of too many characters or lines, with an UnreadableError."""
    for count, what, most in ((len(code), "characters", MAX_CODE), (code.count("\n") + 1, "lines", MAX_LINES)):
        if count > most:
            raise _too_much(count, what, most)


def _too_much(count: int, what: str, most: int) -> UnreadableError:
    return UnreadableError(f"this file has {count:,} {what} of code; at most {most:,} are read")


def _of_ipynb(text: str) -> list[tuple[int, str]]:
    """(number, code) of each cell, of Jupyter's formats 3 and 4."""
    try:
        return [(number, _source(cell)) for number, cell in _cells(json.loads(text)) if cell["cell_type"] == "code"]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, MemoryError) as why:
        raise ValueError(f"it cannot be read as a notebook ({type(why).__name__}: {str(why)[:150]})") from None


def _cells(notebook: Any) -> Iterator[tuple[int, Any]]:
    sheets = notebook["worksheets"] if notebook["nbformat"] < 4 else [notebook]
    return enumerate((cell for sheet in sheets for cell in sheet["cells"]), 1)


def _source(cell: Any) -> str:
    source = cell["source"] if "source" in cell else cell["input"]
    return with_plain_newlines(source if isinstance(source, str) else "".join(source))


def with_plain_newlines(text: str) -> str:
    """With the ends of lines as Python counts them."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _placed(cells: list[tuple[int, str]]) -> Iterator[NotebookCell]:
    """The cells of a notebook, with their lines counted as if they were one file."""
    require_few("\n".join(code for _, code in cells))
    first = 1
    for number, code in cells:
        yield NotebookCell(first, code, number)
        first += code.count("\n") + 1


def _of_script(text: str) -> Iterator[NotebookCell]:
    """The text between marks, on the lines that it has in the file."""
    marks = list((PERCENT_MARK if PERCENT_MARK.search(text) else LIGHT_MARK).finditer(text))
    starts = [0, *(mark.end() for mark in marks)]
    ends = [*(mark.start() for mark in marks), len(text)]
    line, last = 1, 0
    for number, (start, end) in enumerate(zip(starts, ends), 1):
        line, last = line + text.count("\n", last, start), start
        if number == 1 or not NO_CODE.search(marks[number - 2][0]):
            yield NotebookCell(line, text[start:end], number)


def without_magics(code: str) -> str:
    """The code with IPython's lines as comments, and what they continue on; all lines stay where they are."""
    if OTHER_LANGUAGE.match(code):
        return ""
    lines, continued = code.split("\n"), False
    for at, line in enumerate(lines):
        if continued or MAGIC.match(line):
            lines[at] = f"# {line}"
            continued = line.rstrip().endswith("\\")
    return "\n".join(lines)


# --- Statements of a notebook ---


GAME_PACKAGES = ("lib", "lib.engine", "lib.layout")
"""Packages whose names belong to the game: a star import of them never contains a solution."""

DEFINITION = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef

PURE_CALLS = {
    "builtins": "abs all any bool chr complex dict divmod enumerate filter float frozenset int len list map max min "
    "ord pow range repr reversed round set slice sorted str sum tuple zip",
    "collections": "Counter OrderedDict defaultdict deque namedtuple",
    "copy": "copy deepcopy",
    "fractions": "Fraction",
    "functools": "partial",
    "itertools": "chain chain.from_iterable combinations count cycle islice pairwise permutations product repeat "
    "zip_longest",
    "math": "ceil comb factorial floor gcd isqrt lcm log log2 prod sqrt",
}
"""By module, functions and classes whose call has no effect but its result."""

CALL_THEIR_FIRST = ("builtins.filter", "builtins.map", "collections.defaultdict")
"""Those of them that call their first argument; what is given as `key` is called too."""

PURE_METHODS = frozenset(
    "copy count difference format get index intersection issubset items join keys lower replace split strip union "
    "upper values".split()
)
"""Methods of numbers, texts and collections that change nothing."""

PURE_SYNTAX = (
    ast.Constant, ast.Tuple, ast.List, ast.Set, ast.Dict, ast.UnaryOp, ast.BinOp, ast.BoolOp, ast.Compare, ast.IfExp,
    ast.Subscript, ast.Slice, ast.Starred, ast.JoinedStr, ast.FormattedValue,
)  # fmt: skip
"""Expressions that are pure if their parts are."""

COMPREHENSION = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp

FAILED = "__failed__"
"""The global in which assignments that fail are noted, by name: the exception."""


class Skipped(NamedTuple):
    """A binding that is not kept: its line, and the reason."""

    line: int
    why: str


class ImpureError(Exception):
    """An expression is not pure; the text says why, after 'because'."""


class KeptStatements:
    """The statements that are kept of those `seen` so far, and the names that only others bind."""

    def __init__(self, solutions: Collection[str]) -> None:
        """`solutions` are names to which a call of the player's own function or class may be assigned."""
        self.kept: list[ast.stmt] = []
        self.left_out: dict[str, Skipped] = {}
        self._solutions = solutions
        self._known: set[str] = set()
        self._own: set[str] = set()
        self._imported: dict[str, str] = {}

    def see(self, node: ast.stmt) -> None:
        """Keeps a statement, or notes why the names that it binds are not kept."""
        try:
            self._keep(node)
        except (ImpureError, RecursionError) as why:
            reason = str(why) if isinstance(why, ImpureError) else "it is nested too deeply"
            for name in bound_names(node):
                if name not in self._known:
                    self.left_out[name] = Skipped(node.lineno, reason)

    def _keep(self, node: ast.stmt) -> None:
        names = set(bound_names(node))
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                self._own |= names
                self._forget_imports(names)
            case ast.Import():
                self._imported.update({bound_as(a): a.name if a.asname else bound_as(a) for a in node.names})
            case ast.ImportFrom():
                self._imported.update({bound_as(a): f"{node.module}.{a.name}" for a in node.names})
            case ast.Assign() | ast.AugAssign() | ast.AnnAssign():
                self._require_pure_assignment(node)
                self._own -= names
                self._forget_imports(names)
                node = guarded(node)
            case _:
                raise ImpureError(f"it is assigned in a '{type(node).__name__.lower()}' statement")
        self.kept.append(node)
        self._known |= names
        for name in names:
            self.left_out.pop(name, None)

    def _forget_imports(self, names: Iterable[str]) -> None:
        for name in names:
            self._imported.pop(name, None)

    def _require_pure_assignment(self, node: ast.Assign | ast.AugAssign | ast.AnnAssign) -> None:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in targets:
            self._require_plain(target, new=not isinstance(node, ast.AugAssign))
        if node.value is None:
            raise ImpureError("it has no value")
        own = self._own if any(isinstance(t, ast.Name) and t.id in self._solutions for t in targets) else ()
        self._require_pure(node.value, (), own)

    def _require_plain(self, target: ast.expr, new: bool) -> None:
        """Refuses to assign to anything but names, and items of names that are kept."""
        match target:
            case ast.Name(id=name) if new or name in self._known:
                return
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                for part in parts:
                    self._require_plain(part, new)
            case ast.Starred(value=value):
                self._require_plain(value, new)
            case ast.Subscript(value=ast.Name(id=name), slice=key) if name in self._known:
                self._require_pure(key)
            case _:
                raise ImpureError(f"it changes {_shown(target)}")

    def _require_pure(self, node: ast.expr, local: Collection[str] = (), own: Collection[str] = ()) -> None:
        """Refuses an expression that is not pure. `local` are names bound around it; `own` may be called."""
        match node:
            case ast.Name(id=name):
                if name in self.left_out and name not in local:
                    raise ImpureError(f"it uses {name}, which was left out too")
            case ast.Lambda(args=arguments):
                for default in filter(None, [*arguments.defaults, *arguments.kw_defaults]):
                    self._require_pure(default, local)
            case ast.Attribute():
                if not self._qualified(node):
                    raise ImpureError(f"it reads {_shown(node)}")
            case ast.Call():
                self._require_pure_call(node, local, own)
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                self._require_pure_comprehension(node, local)
            case _ if isinstance(node, PURE_SYNTAX):
                for part in ast.iter_child_nodes(node):
                    if isinstance(part, ast.expr):
                        self._require_pure(part, local)
            case _:
                raise ImpureError(f"it is not a plain value ({_shown(node)})")

    def _require_pure_call(self, node: ast.Call, local: Collection[str], own: Collection[str]) -> None:
        function = node.func
        listed = self._is_listed(function)
        if isinstance(function, ast.Attribute) and not self._qualified(function) and function.attr in PURE_METHODS:
            self._require_pure(function.value, local)
        elif not listed and not (isinstance(function, ast.Name) and function.id in own):
            raise ImpureError(f"it calls {_shown(function)}")
        for i, argument in enumerate([*node.args, *(keyword.value for keyword in node.keywords)]):
            self._require_pure(argument, local)
            if i == 0 and self._qualified(function) in CALL_THEIR_FIRST:
                self._require_pure_function(argument, local)
        for keyword in node.keywords:
            if keyword.arg == "key":
                self._require_pure_function(keyword.value, local)

    def _require_pure_function(self, node: ast.expr, local: Collection[str]) -> None:
        """Refuses an argument that the function it is given to would call."""
        if isinstance(node, ast.Lambda):
            self._require_pure(node.body, {*local, *(argument.arg for argument in node.args.args)})
        elif not self._is_listed(node):
            raise ImpureError(f"it calls {_shown(node)}")

    def _require_pure_comprehension(self, node: COMPREHENSION, local: Collection[str]) -> None:
        inner = {*local}
        for part in node.generators:
            self._require_pure(part.iter, inner)
            inner |= {n.id for n in ast.walk(part.target) if isinstance(n, ast.Name)}
            for condition in part.ifs:
                self._require_pure(condition, inner)
        for made in (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,):
            self._require_pure(made, inner)

    def _is_listed(self, node: ast.expr) -> bool:
        module, _, name = self._qualified(node).partition(".")
        return name in PURE_CALLS.get(module, "").split()

    def _qualified(self, node: ast.expr) -> str:
        """The name of an expression with its module, 'math.ceil'; empty if it begins with no import or builtin."""
        match node:
            case ast.Name(id=name) if name in self._imported:
                return self._imported[name]
            case ast.Name(id=name) if hasattr(builtins, name) and name not in self._known:
                return f"builtins.{name}"
            case ast.Attribute(value=value, attr=attribute):
                module = self._qualified(value)
                return module and f"{module}.{attribute}"
        return ""


def guarded(node: ast.stmt) -> ast.stmt:
    """An assignment that only notes its exception, so that it fails those who use it; a literal cannot fail."""
    with suppress(ValueError, TypeError, RecursionError, MemoryError):
        if isinstance(node, ast.Assign) and all(isinstance(target, ast.Name) for target in node.targets):
            ast.literal_eval(node.value)
            return node
    note = f"globals().setdefault('{FAILED}', {{}}).update(dict.fromkeys({[*bound_names(node)]!r}, problem))"
    (trial,) = ast.parse(f"try: pass\nexcept Exception as problem: {note}").body
    assert isinstance(trial, ast.Try)
    for part in ast.walk(trial):
        if isinstance(part, ast.stmt | ast.expr | ast.ExceptHandler):
            ast.copy_location(part, node)
    trial.body = [node]
    return trial


def bound_names(*body: ast.AST) -> Iterator[str]:
    """The names that statements of a module bind; not those bound inside functions."""
    return (name for name, _ in bound_by(body))


def bound_by(body: Iterable[ast.AST]) -> Iterator[tuple[str, int]]:
    """The names that a module's statements bind, and on which lines; not those bound inside functions.

    A star import binds '*', for names that are unknown; star imports of the game's packages bind no puzzle.
    """
    to_visit: list[ast.AST] = list(body)
    while to_visit:
        match node := to_visit.pop():
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name, node.lineno
            case ast.Lambda() | ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                pass
            case ast.ImportFrom(module=module, names=[ast.alias(name="*")]) if module in GAME_PACKAGES:
                pass
            case ast.Import() | ast.ImportFrom():
                for alias in node.names:
                    yield bound_as(alias), node.lineno
            case ast.Name(ctx=ast.Store()):
                yield node.id, node.lineno
            case _:
                to_visit += ast.iter_child_nodes(node)


def bound_as(alias: ast.alias) -> str:
    return alias.asname or alias.name.partition(".")[0]


def _shown(node: ast.expr) -> str:
    text = ast.unparse(node)
    return text if len(text) <= 40 else text[:37] + "..."


# --- A definition in short, by which the grader recognizes a starter and finds methods ---


class Sketch(NamedTuple):
    """A definition in short."""

    digest: str = ""
    """Digest of its body. Comments, layout, docstrings and annotations do not count; empty if it is too deep."""
    todo: tuple[str, ...] | None = None
    """Of a function that still has a placeholder, such as `assert False, "TODO"`: the names that it calls."""
    methods: tuple[tuple[str, int], ...] = ()
    """Of a class, its methods, each with the line of its `def`."""


def sketch(definition: ast.AST) -> Sketch:
    try:
        bare = Bare().visit(deepcopy(definition))
        body = getattr(bare, "body", [bare])
        digest = sha256("".join(map(ast.dump, body)).encode("utf-8", "surrogatepass")).hexdigest()
    except RecursionError:
        return Sketch()  # no starter is as deep as that
    if isinstance(definition, ast.ClassDef):
        methods = ((node.name, node.lineno) for node in definition.body if isinstance(node, ast.FunctionDef))
        return Sketch(digest, None, tuple(methods))
    if not any(map(_is_placeholder, body)):
        return Sketch(digest)
    calls = {called_name(node) for node in ast.walk(bare) if isinstance(node, ast.Call)}
    return Sketch(digest, tuple(sorted(calls)))


def called_name(call: ast.Call) -> str:
    """The name of what is called, without the object that it is a method of."""
    return getattr(call.func, "attr", "") or getattr(call.func, "id", "?")


class Bare(ast.NodeTransformer):
    """Removes what does not change what a definition does: docstrings and annotations."""

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def _definition(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> ast.AST:
        if not isinstance(node, ast.ClassDef):
            node.returns = None
        if ast.get_docstring(node, clean=False) is not None:
            del node.body[0]
        return self.generic_visit(node)

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = _definition


def _is_placeholder(node: ast.stmt) -> bool:
    """True for `assert False`, with any message, `raise NotImplementedError` and `...`."""
    match node:
        case ast.Assert(test=ast.Constant(value=value)):
            return not value
        case ast.Raise(exc=ast.Name(id="NotImplementedError") | ast.Call(func=ast.Name(id="NotImplementedError"))):
            return True
        case ast.Expr(value=ast.Constant(value=value)):
            return value is ...
    return False


# --- A compiled submission, as the worker that reads it hands it to the workers that run it ---


class CompiledCode(NamedTuple):
    """Code of a whole file, with the lines of the names that it binds. `name` is the player's file."""

    name: str
    lines: Mapping[str, int]
    left_out: Mapping[str, tuple[int, str]]
    """By name that a notebook assigns: the line and the reason why that was left out."""
    code: CodeType | None
    """None if the file cannot be compiled."""

    def dump(self) -> bytes:
        left_out = {name: tuple(why) for name, why in self.left_out.items()}
        return marshal.dumps((self.name, dict(self.lines), left_out, self.code))

    @classmethod
    def load(cls, data: bytes) -> Self:
        """The opposite of `dump`. Only for a confined process: bytes that `dump` did not write can do anything."""
        return cls(*marshal.loads(data))

    def failure_of(self, name: str, names: Mapping[str, Any]) -> Failure | None:
        """The failure of the assignment of a name, if it has failed; `names` are the module's."""
        failed = names.get(FAILED, {}).get(name)
        return None if failed is None or name in names else of_crash(failed, self.name, "", self.lines[name])

    def explained(self, failure: Failure, names: Mapping[str, Any]) -> Failure:
        """A failure, with the reason if it is for a name that was left out, or whose assignment has failed; for a name
        of ours, with its import."""
        missing = re.search(r"NameError: name '(\w+)' is not defined", failure.sentence)
        name = missing[1] if missing else ""
        failed = self.failure_of(name, names)
        if failed is not None:
            line, reason = failed.line, f"that fails: {failed.sentence}"
        elif name in self.left_out:
            line, reason = self.left_out[name]
        elif module := _home_of(name):
            return failure._replace(sentence=f"{failure.sentence}; begin the file with 'from {module} import {name}'")
        else:
            return failure
        return failure._replace(sentence=f"{failure.sentence}; line {line} defines {name}, but {reason}")


def _home_of(name: str) -> str:
    """The module that players import a name from, of those that are loaded."""
    homes = (module for module in ("lib", "lib.layout", "lib.engine") if module in sys.modules)
    return next((module for module in homes if name in getattr(sys.modules[module], "__all__", ())), "")


# --- A submission: what it defines, and the code to run ---


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
