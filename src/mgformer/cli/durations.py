"""Lengths of time as users write them: 90, 90s, 10m, 2h."""

import re

from mgformer.errors import ConfigError

UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


def seconds_of(text: str, option: str) -> float:
    """Return the seconds in a length of time; `option` names it in the error."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", text.strip())
    if found is None or not float(found[1]):
        raise ConfigError(f"{option}: got {text!r}, expected a time such as 90s, 10m or 2h")
    return float(found[1]) * UNITS[found[2]]
