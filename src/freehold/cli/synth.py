"""``freehold synth``."""

import sys
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from freehold.cli.options import PATH
from freehold.cli.pulling import progress_bar
from freehold.errors import ConfigError, shown
from freehold.foreign_json import NOT_JSON

if TYPE_CHECKING:
    from freehold.synth import SynthConfig


@click.command()
@click.argument("out", type=PATH, help="A .gguf file, or a directory for safetensors.")
@click.option("--preset", help="Sizes by name; an unknown one lists all.")
@click.option("--sizes", type=PATH, help="JSON file with the sizes of the model.")
@click.option("--dtype", default="BF16", help="Type of the matrices: F32, F16, BF16, Q8_0, Q4_1, Q4_0.")
@click.option("--seed", type=click.IntRange(0), default=0, help="The same seed gives the same weights.")
def synth(out: Path, preset: str | None, sizes: Path | None, dtype: str, seed: int) -> None:
    """Write a random-weight checkpoint of any size: it loads, serves and costs like a real one, and says nothing."""
    from freehold.files.tensors import DType
    from freehold.synth import GGUF_DTYPES, PRESETS, write_checkpoint

    if (preset is None) == (sizes is None):
        raise ConfigError("name either --preset or --sizes")
    if preset is not None and preset not in PRESETS:
        raise ConfigError(f"unknown preset {preset!r}; known are {', '.join(PRESETS)}")
    writable = [known.name for known in GGUF_DTYPES]
    if dtype not in writable:
        raise ConfigError(f"--dtype can't be {dtype!r}; known are {', '.join(writable)}")
    if not out.parent.is_dir():
        raise ConfigError(f"{out} can't be written: there is no folder {out.parent}; make it first")
    if out.suffix != ".gguf" and out.suffix[1:2].isalpha():  # "model-1.5b" is a directory's name
        raise ConfigError(f"OUT can't be {shown(str(out))}; name a .gguf file, or a directory, without {out.suffix}")
    config = PRESETS[preset] if preset is not None else _read(sizes or Path())
    form: Literal["gguf", "hf"] = "gguf" if out.suffix == ".gguf" else "hf"

    with progress_bar(out.name) as show:
        write_checkpoint(config, out, format=form, dtype=DType[dtype], seed=seed, on_progress=show)
    print(f"{out}: {config.num_parameters / 1e6:.1f} M parameters of {config.family}, seed {seed}", file=sys.stderr)


def _read(path: Path) -> "SynthConfig":
    import msgspec

    from freehold.synth import SynthConfig

    try:
        values = msgspec.json.decode(path.read_bytes(), type=dict[str, msgspec.Raw])
        known = {field.name for field in fields(SynthConfig)}
        if strangers := sorted(values.keys() - known):
            raise ConfigError(f"{path} has unknown keys {', '.join(strangers)}; known are {', '.join(sorted(known))}")
        return msgspec.json.decode(path.read_bytes(), type=SynthConfig)
    except OSError as error:
        raise ConfigError(f"can't read {path}: {error.strerror}") from None
    except NOT_JSON as error:
        raise ConfigError(f"{path} doesn't describe a model: {error}") from None
