"""Sketches a definition without running it: the grader recognizes an unchanged starter, and finds methods."""

import ast
from copy import deepcopy
from hashlib import sha256
from typing import NamedTuple


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
