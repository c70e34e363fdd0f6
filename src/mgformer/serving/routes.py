"""The routes that answer questions about users and items."""

import asyncio
from typing import Annotated, Any

import numpy as np
import polars as pl
from fastapi import FastAPI
from fastapi import Path as PathParameter
from fastapi import Query as QueryParameter
from fastapi.responses import Response

from mgformer.recommend.answer import Answer, TextId
from mgformer.recommend.lists import items_of, numbers_of, with_names
from mgformer.recommend.query import Query
from mgformer.runs.bundle import Bundle
from mgformer.serving import schemas
from mgformer.serving.engine import Engine
from mgformer.serving.limits import Limits

SearchText = Annotated[str, QueryParameter(max_length=200)]
SearchLimit = Annotated[int, QueryParameter(ge=1, le=200)]


def add_routes(app: FastAPI, engine: Engine, limits: Limits) -> None:
    """Add the routes to the service. Bodies are checked against the limits."""
    a_user, an_item = (
        ids.values[0] if len(ids) else "" for ids in (engine.bundle.users, engine.bundle.items)
    )
    bodies = schemas.request_bodies(limits, a_user, an_item)

    # The first two encode their answers themselves: FastAPI would need more time to validate and
    # convert a list than the engine needs to make it.

    @app.post("/recommend", response_model=Answer)
    async def recommend(body: bodies.recommend) -> Response:  # type: ignore[name-defined]
        """Recommend items to a user of the training data, or to a new user with a history."""
        return _json(schemas.ANSWER.dump_json(await engine.ask(Query(**dict(body)))))

    @app.post("/recommend/batch", response_model=list[Answer])
    async def recommend_batch(body: bodies.batch) -> Response:  # type: ignore[name-defined]
        """Recommend items to many users of the training data."""
        options = {**dict(body), "exclude": tuple(body.exclude)}
        users = options.pop("users")
        answers = await engine.ask_all([Query(user=user, **options) for user in users])
        return _json(await asyncio.to_thread(schemas.answers_as_json, answers))

    @app.post("/similar", response_model=list[schemas.SimilarItem] | list[schemas.SimilarUser])
    async def similar(body: bodies.similar) -> Any:  # type: ignore[name-defined]
        """Return the items most similar to an item, or the users most similar to a user."""
        recommender = engine.loaded.recommender
        if body.item is not None:
            found = await engine.run(recommender.similar_items, body.item, body.k)
        else:
            found = await engine.run(recommender.similar_users, body.user, body.k)
        return found.to_dicts()

    @app.get("/items", response_model=list[schemas.Item])
    async def items(q: SearchText = "", limit: SearchLimit = 20) -> Any:
        """Find items by a part of their name or id; without `q`, return the most popular."""
        return (await engine.run(find_items, engine.bundle, q, limit)).to_dicts()

    @app.get("/users", response_model=list[TextId])
    async def users(q: SearchText = "", limit: SearchLimit = 20) -> Any:
        """Find users by a part of their id."""
        every = engine.bundle.users.values.to_frame("user")
        return (await engine.run(_containing, every, q, limit))["user"].to_list()

    @app.get("/users/{user_id:path}", response_model=schemas.Owned)
    async def user(
        user_id: Annotated[
            str, PathParameter(max_length=schemas.ID_LENGTH, examples=[str(a_user)])
        ],
        limit: Annotated[int, QueryParameter(ge=1, le=1_000)] = 100,
    ) -> Any:
        """Return how many items a user has, and the first of them."""
        bundle = engine.bundle
        (number,) = numbers_of("user", bundle.users, user_id)
        own = items_of(bundle, number)
        items = with_names(bundle, own[:limit]).to_dicts()
        return {"user": bundle.users.values[int(number)], "total": len(own), "items": items}

    @app.get("/model")
    async def model() -> dict[str, Any]:
        """Describe the model in service: data, protocol, figures, config."""
        bundle = engine.bundle
        record = bundle.record.to_mapping()
        del record["groups"]
        sizes = {"num_users": len(bundle.users), "num_items": len(bundle.items)}
        return {**record, **sizes, "bundle": engine.loaded.checksum}


def find_items(bundle: Bundle, text: str, limit: int) -> pl.DataFrame:
    """Return the items whose id or name contains a text, by popularity: item, name (if any)."""
    by_popularity = np.argsort(-bundle.item_degrees, kind="stable")
    return _containing(with_names(bundle, by_popularity), text, limit)


def _containing(table: pl.DataFrame, text: str, limit: int) -> pl.DataFrame:
    """Return the rows that contain a text; rows with exactly this id, the first column, lead."""
    if text:
        lower = pl.all().cast(pl.String).str.to_lowercase()
        table = table.filter(pl.any_horizontal(lower.str.contains(text.lower(), literal=True)))
        is_exact = pl.first().cast(pl.String) == text
        table = table.sort(is_exact, descending=True, maintain_order=True)
    return table.head(limit)


def _json(body: bytes) -> Response:
    return Response(body, media_type="application/json")
