"""The key that a service may want, in its OpenAPI document."""

from typing import Any

from fastapi import FastAPI

OPEN: dict[str, Any] = {"security": []}
"""What is answered without a key says so in the document."""


def document_key(app: FastAPI) -> None:
    """Say in the document that requests need a key."""
    describe = app.openapi

    def with_key() -> dict[str, Any]:
        document = describe()
        scheme = {"type": "apiKey", "in": "header", "name": "X-API-Key"}
        document["components"]["securitySchemes"] = {"key": scheme}
        document["security"] = [{"key": []}]
        return document

    app.openapi = with_key  # type: ignore[method-assign]
