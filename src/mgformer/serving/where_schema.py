"""The JSON schemas of filters and caps, for the attributes of the bundle in service."""

from collections.abc import Mapping
from typing import Any

from mgformer.data.attributes import Attributes, Kind

Schema = dict[str, Any]
_WORD: Schema = {"anyOf": [{"type": "string"}, {"type": "integer"}]}
_VALUES: Mapping[Kind, Schema] = {
    "category": _WORD,
    "categories": _WORD,
    "text": _WORD,
    "number": {"type": "number"},
    "date": {"type": "string", "format": "date"},
    "flag": {"type": "boolean"},
}
_SINGLE: Mapping[Kind, tuple[str, ...]] = {
    "category": ("=", "!="),
    "text": ("=", "!="),
    "number": ("=", "!=", "<", "<=", ">", ">="),
    "date": ("=", "!=", "<", "<=", ">", ">="),
    "flag": ("=", "!="),
}
"""Operators that take one value."""


def where_schema(about: Attributes, depth: int = 1) -> Schema:
    """Return the schema of a filter; the document shows `depth` levels of and, or and not."""
    properties = {name: _column(own.kind) for name, own in about.public.items()}
    if depth:
        inner = where_schema(about, depth - 1)
        several = {"type": "array", "minItems": 1, "items": inner}
        properties |= {"and": several, "or": several, "not": inner}
    return _object(properties)


def at_most_schema(about: Attributes) -> Schema:
    """Return the schema of the numbers of items that may share a value."""
    count: Schema = {"type": "integer", "minimum": 1}
    countable = [n for n, own in about.public.items() if own.kind not in ("text", "embedding")]
    return {
        "type": "object",
        "properties": dict.fromkeys(countable, count),
        "additionalProperties": False,
    }


def _column(kind: Kind) -> Schema:
    """Return the schema of what may be said about an attribute; null means that it is missing."""
    missing: Schema = {"type": "null"}
    if kind == "embedding":
        return missing
    value = _VALUES[kind]
    several: Schema = {"type": "array", "items": value}
    operators = dict.fromkeys(_SINGLE.get(kind, ()), value)
    if kind in ("categories", "text"):
        operators["has"] = {"anyOf": [value, several]}
    if kind == "categories":
        return {"anyOf": [missing, _object(operators)]}
    if kind == "flag":
        return {"anyOf": [missing, value, _object(operators)]}
    return {"anyOf": [missing, value, several, _object({**operators, "in": several})]}


def _object(properties: Mapping[str, Schema]) -> Schema:
    return {
        "type": "object",
        "minProperties": 1,
        "properties": dict(properties),
        "additionalProperties": False,
    }
