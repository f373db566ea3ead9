"""``freehold doctor``."""

import platform
import shutil
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import click

from freehold import __version__, resolve
from freehold.errors import ConfigError, UserError
from freehold.machine import read_machine
from freehold.setting_kinds import format_size

SMALL_DISK_BYTES = 1 << 30
_LIBRARIES = ("numpy", "tokenizers", "jinja2", "msgspec", "starlette", "uvicorn", "httptools")


@click.command()
def doctor() -> None:
    """Tell what this machine offers, and what is missing to serve a model. Exit code 2 if something is."""
    machine = read_machine()
    print(f"freehold   {__version__}, Python {platform.python_version()}, {platform.platform()}")
    print(f"libraries  {', '.join(f'{name} {version(name)}' for name in _LIBRARIES)}")
    print(f"processor  {machine.processor}: {', '.join(machine.isa_levels)}")
    print(f"cores      {machine.num_cores} ({machine.cores_from})")
    memory, free = format_size(machine.memory_bytes), format_size(machine.available_bytes)
    print(f"memory     {memory} ({machine.memory_from}), {free} available")
    checks = (*_settings(), _native(machine.isa_levels), _port())
    faults = [fault for fault in (*_store(), *checks) if fault]
    for fault in faults:
        print(f"  fault: {fault}")
    print("ready to serve" if not faults else f"{len(faults)} fault{'s' if len(faults) > 1 else ''}")
    if faults:
        sys.exit(2)


def _store() -> list[str]:
    """Faults of the model store."""
    try:
        home = resolve.home_directory()
    except ConfigError:
        return []  # its variable is wrong, which `_settings` tells
    return [_disk(home), _models(home)]


def _settings() -> list[str]:
    """What is wrong with variables and with the file that one of them names."""
    faults = resolve.environment_faults()
    try:
        resolve.lookup("port", {})
    except ConfigError as error:
        return faults or [str(error)]
    return faults


def _disk(home: Path) -> str:
    existing = next(path for path in (home, *home.parents) if path.is_dir())
    free_bytes = shutil.disk_usage(existing).free
    print(f"disk       {format_size(free_bytes)} free at {home}")
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        return f"nothing can be written to {home} ({error.strerror}): set FREEHOLD_HOME to a folder of yours"
    return "" if free_bytes >= SMALL_DISK_BYTES else f"less than {format_size(SMALL_DISK_BYTES)} of disk is free"


def _models(home: Path) -> str:
    from freehold.files import store

    models = [model.name for model in store.list_models(home)]
    print(f"models     {', '.join(models) or 'none'}")
    return "" if models else "no model is in the store: `freehold pull` fetches the default one"


def _native(isa_levels: tuple[str, ...]) -> str:
    """Check the native code on each instruction-set level that the processor has."""
    from freehold.cli.self_check import SelfCheckError, check_native

    for isa in isa_levels:
        try:
            check_native(isa)
        except (SelfCheckError, UserError) as error:
            return f"the native extension: {error}"
    print(f"native     computes what the reference does, with {', '.join(isa_levels)}")
    return ""


def _port() -> str:
    """Try the address that `freehold serve` would take."""
    from freehold.config import ServeConfig
    from freehold.serve.server import bind

    try:
        host, port = resolve.address()
    except ConfigError:
        return ""  # `_settings` tells
    try:
        bind(ServeConfig(host=host, port=port)).close()
    except UserError as error:
        return f"`freehold serve` {error}"
    print(f"port       {port} on {host} is free")
    return ""
