"""A wheel in the place of numpy's for Pyodide: it is found, loaded and imported as that is, and computes nothing."""

import zipfile
from pathlib import Path

NUMPY = '''
import sys
from types import ModuleType


class Name:
    """Stands for anything that numpy defines."""

    def __init__(self, name):
        self.__name__ = name

    def __call__(self, *given, **named):
        return self if self.__name__ in ("dtype", "default_rng", "vectorize") else _refuse(self.__name__)

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Name(f"{self.__name__}.{name}")

    def __getitem__(self, key):
        return self

    def __or__(self, other):
        return self

    __ror__ = __or__

    def __neg__(self):
        return self


def _refuse(name):
    raise ValueError(f"this is not numpy, and computes no {name}")


class Defined(type):
    """The type of a class that has whatever numpy's has."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Name(name)


class ndarray(metaclass=Defined):
    base = property(lambda self: None)

    def __class_getitem__(cls, key):
        return cls


class generic: pass
class integer(generic): pass
class floating(generic): pass
class float16(floating): pass
class float32(floating): pass
class float64(floating): pass
class bool_(generic): pass
class ufunc: pass


class Module(ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Name(name)


for _name in ("", ".typing", ".random", ".fft", ".linalg", ".lib", ".lib.stride_tricks", ".lib.mixins"):
    _module = Module("numpy" + _name)
    _module.__dict__.update({key: value for key, value in globals().items() if not key.startswith("_")})
    _module.__path__, _module.__version__, _module.__spec__, _module.__all__ = [], "0", __spec__, []
    sys.modules["numpy" + _name] = _module
for _name in ("random", "fft", "linalg"):
    setattr(sys.modules["numpy"], _name, sys.modules["numpy." + _name])
sys.modules["numpy.random"].Generator = type("Generator", (), {})
sys.modules["numpy.random"].RandomState = type("RandomState", (), {})
sys.modules["numpy.lib.mixins"].NDArrayOperatorsMixin = type("NDArrayOperatorsMixin", (), {})
'''


def write_wheel(path: Path) -> Path:
    """Writes the wheel with the name of a path, and returns it."""
    name, version, *_ = path.name.split("-")
    about = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("numpy/__init__.py", NUMPY)
        wheel.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: py3-none-any\n")
        wheel.writestr(f"{about}/LICENSE.txt", "The licence of the stand-in")
        wheel.writestr(f"{about}/RECORD", "")
    return path
