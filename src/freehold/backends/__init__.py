"""Devices that run steps. `open_backend` makes one by name and loads nothing of the others."""

from importlib import import_module
from typing import TYPE_CHECKING, cast

from freehold.errors import ConfigError, ResourceError

if TYPE_CHECKING:
    from collections.abc import Callable

    from freehold.arch.load import Weights
    from freehold.arch.spec import ModelSpec
    from freehold.backends.base import Backend, BackendOptions

BACKENDS = {
    "cpu": ("freehold.backends.cpu", "open_cpu"),
    "reference": ("freehold.backends.reference", "open_reference"),
    "scripted": ("freehold.backends.scripted", "open_scripted"),
}
"""Name → module and the function in it that opens the backend."""


def open_backend(name: str, spec: "ModelSpec", weights: "Weights", options: "BackendOptions") -> "Backend":
    """Load a model's weights onto a backend and reserve its KV blocks.

    Raises:
        ConfigError: no such backend, or it lacks an option that was asked for.
        ResourceError: the backend's code is missing or was built for another Python.
    """
    if name not in BACKENDS:
        raise ConfigError(f"backend '{name}' doesn't exist (there are: {', '.join(sorted(BACKENDS))})")
    module_name, function_name = BACKENDS[name]
    try:
        module = import_module(module_name)
    except ImportError as error:
        raise ResourceError(
            f"backend '{name}' doesn't load: {error}; rebuild Freehold (`make native` in a clone), or reinstall it"
        ) from error
    opener = cast("Callable[[ModelSpec, Weights, BackendOptions], Backend]", getattr(module, function_name))
    return opener(spec, weights, options)
