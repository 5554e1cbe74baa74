"""Decides which statements of a notebook are kept for grading, from their syntax alone; nothing is executed here.

Kept are imports, definitions, and assignments that are pure: they use only names that are kept, and call only what
`PURE_CALLS` lists. Everything else, such as a run of the schedule, would cost time or do harm, and is left out.
"""

import ast
import builtins
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

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
