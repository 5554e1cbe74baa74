"""Files that `puzzles plan` reads and writes: configs, presets of GPUs, and measured runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from lib.planning import Gpu, Transformer


def text_of(path: str) -> str:
    """The text of a file."""
    try:
        with open(path, encoding="utf-8-sig") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as why:
        raise click.UsageError(f"{path} cannot be read: {getattr(why, 'strerror', None) or why}") from None


def write_text(text: str, output: str | None) -> None:
    """Writes a text to a file, or prints it."""
    if output is None:
        click.echo(text, nl=False)
        return
    try:
        with open(output, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as why:
        raise click.UsageError(f"{output} cannot be written: {why.strerror}") from None
    click.echo(f"wrote {output}", err=True)


def gpu_named(name: str, changed: dict[str, Any]) -> Gpu:
    """A known GPU, or the one of a preset file (.toml)."""
    from lib.planning import gpu
    from lib.planning.presets import gpu_of_file

    return gpu_of_file(text_of(name), **changed) if name.endswith(".toml") else gpu(name, **changed)


def model_named(name: str, changed: dict[str, Any]) -> Transformer:
    """A known model, or the one of a preset file. Errors as in `gpu_named`."""
    from lib.planning import transformer
    from lib.planning.presets import transformer_of_file

    return transformer_of_file(text_of(name), **changed) if name.endswith(".toml") else transformer(name, **changed)


def calibrated(path: str) -> str:
    """The preset file of the GPU with which a step of a measured run takes as long as it took."""
    from lib.planning.calibration import preset_text, read_run

    found = read_run(text_of(path))
    return preset_text(found, f"{found.gpu.name}-calibrated")
