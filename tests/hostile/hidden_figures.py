"""Known ways to hide flops, bytes and memory from the meters, as changes of the solution of DataParallel."""

HEAD = """\
import array, builtins, os, pickle
import numpy as np
from lib.engine import ShardedEngine


def in_a_child(compute):
    out, answer = os.pipe()
    if os.fork() == 0:
        os.write(answer, pickle.dumps(np.asarray(compute())))
        os._exit(0)
    os.close(answer)
    with open(out, "rb") as file:
        found = pickle.load(file)
    os.wait()
    return found


"""

UNCOUNTED = {
    "memory": "np.frombuffer(np.asarray(a, np.float32).tobytes(), np.float32).reshape(a.shape).view(np.ndarray)"
    ".__array__() @ np.asarray(b).view(np.ndarray)",
    "python_numbers": "np.array([[sum(u * v for u, v in zip(r, c)) for c in b.T.tolist()] for r in a.tolist()], np.float32)",
    "a_child": "in_a_child(lambda: a @ b)",
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


COSTS = {
    "an_empty_message": ("self.send(1, np.zeros(0, np.float32))", 8),
    "an_empty_message_of_three_dimensions": ("self.send(1, np.zeros((9, 0, 7), np.float32))", 24),
    "one_byte": ("self.send(1, np.zeros(1, np.uint8))", 8),
    "bytes": ("self.send(1, np.zeros(64, np.uint8))", 512),
    "whole_numbers": ("self.send(1, np.zeros(64, np.int32))", 512),
    "wide_numbers": ("self.send(1, np.zeros(64, np.int64))", 1024),
    "half_floats": ("self.send(1, np.zeros(64, np.float16))", 256),
    "wide_floats": ("self.send(1, np.zeros(64, np.float64))", 1024),
    "complex_numbers": ("self.send(1, np.zeros(64, np.complex64))", 1024),
    "a_matrix": ("self.send(1, np.zeros((8, 8), np.float32))", 264),
    "a_cube": ("self.send(1, np.zeros((4, 4, 4), np.float32))", 272),
    "a_put": ("self.send_async(np.zeros(4, np.float32), buffer[0, :4], 1)", 24),
    "a_put_of_columns": ("self.send_async(np.zeros((8, 2), np.float32), buffer[:, :2], 1)", 88),
    "a_put_of_every_second": ("self.send_async(np.zeros(4, np.float32), buffer[0, ::2], 1)", 32),
}
"""By name: a call of device 0, and the bytes that it costs."""

TYPES = {
    "a_unit": "m8[4711s]",
    "a_width": "V47",
    "a_text": "S8",
    "a_byte_order": ">f4",
}
"""By name: a dtype that would carry a number."""

LIE = "self._port.meter.sent = 1; self._port.meter.calls.clear()"


def without_flops(solution: str, product: str) -> str:
    """The solution with every product replaced."""
    changed = solution.replace("x @ self.w0", "product(x, self.w0)").replace(
        "relu(z) @ self.w1", "product(relu(z), self.w1)"
    )
    changed = changed.replace("relu(z).T @ grads", "product(relu(z).T, grads)")
    changed = changed.replace("grads @ self.w1.T", "product(grads, self.w1.T)").replace("x.T @ dz", "product(x.T, dz)")
    assert "@" not in changed
    return f"{HEAD}def product(a, b):\n    return {product}\n\n{changed}"


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


def priced(statement: str) -> str:
    """A call of device 0, with a buffer that all have."""
    receive = "if self.device_id == 1:\n            self.receive(0)" if "send(" in statement else "self.barrier()"
    return (
        f"buffer = self.symmetric((8, 8))\n        if self.device_id == 0:\n            {statement}\n        {receive}"
    )
