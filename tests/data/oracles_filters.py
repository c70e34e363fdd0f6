"""Whether a condition holds for one row, in plain Python."""

import operator
import re
from collections.abc import Mapping
from datetime import date, datetime
from typing import Any

from mgformer.data.attributes import Attributes
from mgformer.data.where import MISSING, All, Compare, Not, Where

COMPARE = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def holds(where: Where, row: Mapping[str, Any], about: Attributes) -> bool:
    """Return whether a condition holds for a row."""
    if isinstance(where, Not):
        return not holds(where.inner, row, about)
    if not isinstance(where, Compare):
        combine = all if isinstance(where, All) else any
        return combine(holds(part, row, about) for part in where.parts)
    value, kind = row[where.column], about[where.column].kind
    if where.operator == MISSING:
        return value is None
    if value is None:
        return False
    wanted = list(where.values)
    if kind == "date":
        value, wanted = _moment(value), [datetime.fromisoformat(str(one)) for one in wanted]
    if kind in ("category", "categories", "text"):
        wanted = [str(one) for one in wanted]
    if kind == "categories":
        return bool(set(value) & set(wanted))
    if where.operator == "has":
        words = [re.escape(one) for one in wanted]
        return any(re.search(rf"(?i)(?<!\w){one}(?!\w)", value) for one in words)
    if where.operator == "in":
        return value in wanted
    return bool(COMPARE[where.operator](value, wanted[0]))


def _moment(value: date) -> datetime:
    if isinstance(value, datetime):
        return value
    return datetime(value.year, value.month, value.day)
