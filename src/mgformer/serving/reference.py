"""`/docs`: the requests of the service for people, as one page without scripts.

It is made from the OpenAPI document, so it cannot differ from it. Nothing is loaded from elsewhere:
it works offline and under the security policy of the service.
"""

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any
from urllib.parse import quote, urlencode

PLACEHOLDERS = {"user": "u1", "item": "i1"}
"""Ids for a service with a key: this page needs none, so it must not show ids of the data."""
HEAD = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>mgformer: requests</title>
<link rel="icon" href="/page/icon.svg">
<link rel="stylesheet" href="/page/docs.css">
<main>
<h1>Requests</h1>
<p>Each example works with the models in service. <a href="/openapi.json">openapi.json</a> has the
same for programs, and <a href="/">the page</a> lets you try recommendations.</p>
"""


class Reference:
    """Renders an OpenAPI document."""

    def __init__(self, document: Mapping[str, Any], *, with_key: bool) -> None:
        self.document, self.with_key = document, with_key

    def page(self, address: str) -> str:
        """Return the page; `address` is that of the service, as its reader writes it."""
        parts = [HEAD]
        if self.with_key:
            parts.append(
                "<p>This service needs an API key. Set it before you run the examples:"
                " <code>export MGFORMER_API_KEY=…</code></p>\n"
            )
        for path, operations in self.document["paths"].items():
            for method, operation in operations.items():
                parts += self._operation(address, path, method.upper(), operation)
        return "".join(parts) + "</main>\n</html>\n"

    def _operation(
        self, address: str, path: str, method: str, operation: Mapping[str, Any]
    ) -> Iterator[str]:
        parameters = operation.get("parameters", [])
        body = self._body(operation)
        yield f"<section>\n<h2><b>{method}</b> {escape(path)}</h2>\n"
        for paragraph in operation.get("description", "").split("\n\n"):
            yield f"<p>{_text(paragraph)}</p>\n"
        needs_key = self.with_key and operation.get("security") != []
        for example in self._examples(body) if body else [None]:
            command = _curl(address, path, method, parameters, example, needs_key)
            yield f"<pre>{escape(command)}</pre>\n"
        fields = [
            (one["name"], one["schema"], one.get("description", ""), one.get("required", False))
            for one in parameters
        ]
        for schema in self._choices(body) if body else ():
            required = schema.get("required", [])
            for name, field in schema.get("properties", {}).items():
                fields.append((name, field, field.get("description", ""), name in required))
        if fields:
            yield "<table>\n<tr><th>field<th>type<th>meaning\n"
            for name, schema, about, is_required in fields:
                mark = " (required)" if is_required else ""
                kind = escape(self._kind(schema))
                yield f"<tr><td><code>{escape(name)}</code>{mark}<td>{kind}<td>{_text(about)}\n"
            yield "</table>\n"
        yield "</section>\n"

    def _body(self, operation: Mapping[str, Any]) -> Mapping[str, Any] | None:
        content = operation.get("requestBody", {}).get("content", {})
        schema: Mapping[str, Any] | None = content.get("application/json", {}).get("schema")
        return schema

    def _resolved(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        if "$ref" not in schema:
            return schema
        found: Mapping[str, Any] = self.document["components"]["schemas"][
            schema["$ref"].rpartition("/")[2]
        ]
        return found

    def _choices(self, body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """Return the forms that a body can have."""
        body = self._resolved(body)
        forms = body.get("oneOf") or body.get("anyOf") or []
        if "properties" in body or not forms:
            return [body]
        return [self._resolved(form) for form in forms]

    def _examples(self, body: Mapping[str, Any]) -> list[Any]:
        """Return bodies that work."""
        found: list[Any] = []
        for form in self._choices(body):
            own = form.get("examples") or [
                {
                    name: field["examples"][0]
                    for name, field in form.get("properties", {}).items()
                    if "examples" in field
                }
            ]
            found += own
        return [_without_ids(example) for example in found] if self.with_key else found

    def _kind(self, schema: Mapping[str, Any]) -> str:
        schema = self._resolved(schema)
        if "enum" in schema:
            return " | ".join(map(str, schema["enum"]))
        forms = schema.get("anyOf") or schema.get("oneOf")
        if forms:
            kinds = dict.fromkeys(self._kind(form) for form in forms)
            return " | ".join(kind for kind in kinds if kind != "null")
        if schema.get("type") == "array":
            return f"list of {self._kind(schema.get('items', {}))}"
        bounds = [f"≥ {schema['minimum']:g}"] if "minimum" in schema else []
        bounds += [f"≤ {schema['maximum']:,.0f}"] if "maximum" in schema else []
        kind = {"string": "text", "integer": "whole number", "boolean": "true | false"}.get(
            schema.get("type", ""), schema.get("title") or schema.get("type", "anything")
        )
        return " ".join([kind, *bounds])


def _text(about: str) -> str:
    """Return a text with its `code` marked."""
    return re.sub("`([^`]*)`", r"<code>\1</code>", escape(about))


def _without_ids(example: Any) -> Any:
    """Return an example with placeholders for ids."""
    if isinstance(example, dict):
        return {
            name: PLACEHOLDERS.get(name, _without_ids(value))
            if not isinstance(value, list)
            else [
                PLACEHOLDERS["user" if name == "users" else "item"]
                if isinstance(one, str | int)
                else _without_ids(one)
                for one in value
            ]
            for name, value in example.items()
        }
    return example


def _curl(
    address: str,
    path: str,
    method: str,
    parameters: list[Mapping[str, Any]],
    body: Any,
    needs_key: bool,
) -> str:
    """Return a command for a POSIX shell."""
    query = {}
    for one in parameters:
        example = (one["schema"].get("examples") or one.get("examples") or [None])[0]
        if one["in"] == "path":
            value = PLACEHOLDERS["user"] if needs_key or example is None else str(example)
            path = path.replace("{" + one["name"] + "}", quote(value, safe=""))
        elif one["name"] == "limit":
            query["limit"] = "5"
    url = f"{address}{path}" + (f"?{urlencode(query)}" if query else "")
    words = [
        "curl",
        *(["-X", method] if method != "GET" and body is None else []),
        shlex.quote(url),
    ]
    if needs_key:
        words.append('-H "X-API-Key: $MGFORMER_API_KEY"')
    if body is not None:
        text = shlex.quote(json.dumps(body, ensure_ascii=False))
        words += ["-H 'Content-Type: application/json'", f"-d {text}"]
    return " ".join(words)
