"""Who may enter a server, worked out from its configuration before anything else is done."""

import logging

from freehold.access.database import path_in
from freehold.access.gatekeeper import Gatekeeper
from freehold.config import ServeConfig
from freehold.errors import ConfigError, StateError
from freehold.serve.entrance.guard import is_loopback

_log = logging.getLogger(__name__)


def open_access(config: ServeConfig) -> Gatekeeper:
    """Read the keys.

    Raises:
        ConfigError: the server would listen to other machines, and needs no key.
        StateError: there may be keys, and they can't be read.
    """
    gatekeeper = _gatekeeper(config)
    if gatekeeper.anyone is not None and not is_loopback(config.host) and not config.allow_no_key:
        gatekeeper.close()
        raise ConfigError(
            f"anyone who reaches {config.host} could use this server, as no key exists; make one with `freehold keys "
            "create NAME`, bring one with --api-key, or say --allow-no-key if something else keeps strangers out"
        )
    return gatekeeper


def _gatekeeper(config: ServeConfig) -> Gatekeeper:
    if config.state_dir is None:
        return Gatekeeper(config.api_keys)
    database = path_in(config.state_dir)
    try:
        return Gatekeeper(config.api_keys, database)
    except StateError as error:
        try:
            database.stat()
        except FileNotFoundError:  # so there is no key in it
            _log.warning("usage isn't kept, and keys that are made can't be seen: %s", error)
            return Gatekeeper(config.api_keys)
        except OSError:
            pass
        raise
