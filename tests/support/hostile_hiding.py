"""Known ways to hide flops, bytes and memory from the meters, as changes of the solution of DataParallel."""

from __future__ import annotations

HEAD = """\
import array, builtins, fcntl, gc, os, sys
import numpy as np
from lib.engine import ShardedEngine

KEY = "secret"


def _is_open(fd):
    try:
        return fcntl.fcntl(fd, 1) >= 0
    except OSError:
        return False


def _readable(path):
    try:
        return bool(open(path).read())
    except OSError:
        return False


"""

UNCOUNTED = {
    "memory": "np.frombuffer(np.asarray(a, np.float32).tobytes(), np.float32).reshape(a.shape).view(np.ndarray)"
    ".__array__() @ np.asarray(b).view(np.ndarray)",
    "python_numbers": "np.array([[sum(u * v for u, v in zip(r, c)) for c in b.T.tolist()] for r in a.tolist()], np.float32)",
    "arrays_of_bytes": "np.ndarray(a.shape, a.dtype, a.tobytes()) @ np.ndarray(b.shape, b.dtype, b.tobytes())",
}
"""By name: `product(a, b)` without a product that the meter counts."""

REFUSED = {
    "matrices": "np.asarray(np.matrix(a) * np.matrix(b))",
    "views_as_matrices": "np.asarray(a.view(np.matrix) * b)",
    "records": "np.asarray(a.view(np.recarray) @ b.view(np.recarray))",
}
"""By name: `product(a, b)` with arrays whose products no meter can count."""

COUNTED = {
    "broadcast_sum": "(a[:, :, None] * b[None, :, :]).sum(1)",
    "columns": "sum(a[:, [k]] * b[k] for k in range(len(b)))",
    "elements": "np.stack([sum(b[k] * a[i, k] for k in range(len(b))) for i in range(len(a))])",
    "outer": "sum(np.outer(a[:, k], b[k]) for k in range(len(b)))",
    "plain_views": "a.view(np.ndarray) @ b.view(np.ndarray)",
    "convolve": "np.stack([np.concatenate([np.convolve(r, c[::-1], 'valid') for c in b.T]) for r in a])",
    "correlate": "np.stack([np.concatenate([np.correlate(r, c) for c in b.T]) for r in a])",
    "cumsum": "np.cumsum(a[:, :, None] * b[None, :, :], axis=1)[:, -1]",
    "add_reduce": "np.add.reduce(np.multiply(a[:, :, None], b[None, :, :]), axis=1)",
    "averages": "np.average(a[:, :, None] * b[None, :, :], axis=1) * a.shape[1]",
}
"""By name: another way to write `product(a, b)`, which makes as many products."""

ROW = "[grad.tolist() for grad in (w0_grad, w1_grad)]"

SHARED = {
    "builtins": "vars(builtins).setdefault(KEY, [])",
    "sys_modules": "vars(sys.modules.setdefault(KEY, type(sys)(KEY))).setdefault(KEY, [])",
    "numpy_attribute": "vars(np).setdefault(KEY, [])",
    "the_class": "vars(ShardedEngine).get(KEY) or setattr(ShardedEngine, KEY, []) or getattr(ShardedEngine, KEY)",
    "gc": "next((o for o in gc.get_objects() if type(o) is list and o and o[0] is KEY), None) or vars(np).setdefault(KEY, [KEY])",
}
"""By name: a list that all devices of one interpreter would share."""

FILES = {
    "a_file": "open('shared', 'a').write('1')",
    "a_folder": "os.mkdir(f'shared-{self.device_id}')",
    "a_pipe": "os.mkfifo('shared')",
    "a_link": "os.symlink('a', 'shared')",
}
"""By name: something to write that other devices could see."""

SEEN = {
    "requests": "assert not [o for o in gc.get_objects() if type(o) is dict and {'calls', 'devices'} <= o.keys()]",
    "open_files": "assert [fd for fd in range(64) if _is_open(fd)] == [0, 1, 2, 3]",
    "processes": "assert not _readable('/proc/self/status') and not _readable(f'/proc/{os.getppid()}/status') and not _readable('/proc/self/maps')",
}
"""By name: a statement that fails if a device sees more than its own data."""

NARROW = {
    "float16": "self.all_reduce(grad.astype(np.float16)).astype(np.float32)",
    "int8": "self.all_reduce(np.rint(grad).astype(np.int8)).astype(np.float32)",
    "int16": "self.all_reduce(np.rint(grad * 256).astype(np.int16)).astype(np.float32) / 256",
    "float16_of_a_scaled_array": "self.all_reduce((grad / 64).astype(np.float16)).astype(np.float32) * 64",
}
"""By name: an all-reduce of `grad` in fewer bytes."""

MEMORY = {
    "bytes_objects": "self.hidden = params['layer_1/weights'].tobytes()",
    "a_closure": "self.hidden = (lambda data: lambda: data)(params['layer_1/weights'].tobytes())",
    "a_default": "def hidden(data=params['layer_1/weights'].tolist()): return data\n        self.hidden = hidden",
    "a_generator": "def hidden(data):\n            yield data\n        self.hidden = hidden(params['layer_1/weights'].tobytes())",
    "an_array": "self.hidden = array.array('f', params['layer_1/weights'].ravel().tolist())",
    "a_memoryview": "self.hidden = memoryview(params['layer_1/weights'].tobytes())",
    "an_object": "class Hidden: pass\n        self.hidden = Hidden()\n        self.hidden.data = params['layer_1/weights'].tobytes()",
    "numpy_attribute": "np.hidden = params['layer_1/weights'].tobytes()",
    "builtins": "builtins.hidden = params['layer_1/weights'].tolist()",
}
"""By name: a way to keep a weight where no meter counts it."""

TIERS = {
    "host": "self.host.put('w1', params['layer_1/weights'])",
    "disk": "self.disk.put('w1', params['layer_1/weights'])",
}


LIE = "self._port.meter.sent = 1; self._port.meter.calls.clear()"
FORGERY = "self._port.channel.send('collective', [], 'all_reduce', 'sum', 0, [1], '<f4', [0], 'nothing')"
CHILDREN = {
    "fork": "os.fork() or os._exit(0)",
    "a_program": "import subprocess\n        subprocess.run(['true'])",
    "a_spawned_one": "os.posix_spawn('/bin/true', ['true'], {})",
}
"""By name: starts a process, whose products no meter would count."""


def without_flops(solution: str, product: str) -> str:
    """The solution with every product replaced."""
    changed = solution.replace("x @ self.w0", "product(x, self.w0)").replace(
        "relu(z) @ self.w1", "product(relu(z), self.w1)"
    )
    changed = changed.replace("relu(z).T @ grads", "product(relu(z).T, grads)")
    changed = changed.replace("grads @ self.w1.T", "product(grads, self.w1.T)").replace("x.T @ dz", "product(x.T, dz)")
    assert "@" not in changed
    return f"{HEAD}def product(a, b):\n    return {product}\n\n{changed}"


def with_shared_list(solution: str, shared: str) -> str:
    """The solution with a list in place of its all-reduces, synchronized by barriers."""
    sums = (
        f"shared = {shared}\n        shared.append({ROW})\n        self.barrier()\n"
        "        rows = [row for row in shared if row is not KEY]\n"
        "        w0_grad, w1_grad = (np.sum([np.array(row[i], np.float32) for row in rows], axis=0) for i in (0, 1))\n"
        "        self.barrier()\n        shared.clear()\n"
    )
    head, _, _ = solution.partition("        return {")
    return f'{HEAD}{head}        {sums}        return {{"layer_0/weights": w0_grad, "layer_1/weights": w1_grad}}\n'


def with_statement(solution: str, statement: str) -> str:
    """The solution, which also does something in backward."""
    return HEAD + solution.replace("        x, z = ", f"        {statement}\n        x, z = ")


def with_narrow_wire(solution: str, sum_of_grad: str) -> str:
    """The solution with narrower arrays on the wire."""
    changed = solution.replace("self.all_reduce(", "self.total(")
    return f"{HEAD}{changed}\n    def total(self, grad):\n        return {sum_of_grad}\n"


def with_hidden_memory(solution: str, statement: str) -> str:
    """The solution, which also keeps a weight elsewhere."""
    return HEAD + solution.replace("        self.w1[...] = ", f"        {statement}\n        self.w1[...] = ")
