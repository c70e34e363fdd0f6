"""Models, metrics and splits from outside the package, named `package.module:name`.

Importing a module runs its code. So a name is imported only when the user gives it: as an option,
in a config file, or in Python. A name that was read from a trained recommender or a checkpoint is
only looked up among those that the user gave before.
"""

import os
import sys
from functools import reduce
from importlib import import_module
from types import ModuleType

from mgformer.errors import ConfigError

imported: dict[str, object] = {}
"""Name → what the user imported, or gave in Python, under this name."""


def is_outside(name: str) -> bool:
    """Whether a name has the form `package.module:name`."""
    return ":" in name


def import_object(name: str) -> object:
    """Import what a name of the form `package.module:name` stands for."""
    if name not in imported:
        module_name, _, attribute = name.partition(":")
        if not module_name or not attribute:
            raise ConfigError(f"{name!r}: expected package.module:name")
        module = _import_module(module_name)
        try:
            imported[name] = reduce(getattr, attribute.split("."), module)
        except AttributeError:
            raise ConfigError(
                f"{name}: {module_name} has no {attribute!r}; check {module.__file__}"
            ) from None
    return imported[name]


def _import_module(name: str) -> ModuleType:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # the module exists, and something that it imports is missing
    here = os.getcwd()
    if here not in sys.path:
        sys.path.append(here)  # an installed command does not look there by itself
        return _import_module(name)
    raise ConfigError(
        f"no module {name!r}; run the command in the folder that holds it, or install it"
    )
