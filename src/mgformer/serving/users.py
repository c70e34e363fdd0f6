"""The routes that list users and what they have, or refuse to."""

from typing import Annotated, Any

import fastapi
from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException

from mgformer.recommend.answer import TextId
from mgformer.recommend.finding import find_users
from mgformer.recommend.lists import items_of, numbers_of, with_names
from mgformer.serving import schemas
from mgformer.serving.examples import example_users
from mgformer.serving.models import Models
from mgformer.serving.parameters import ModelName, SearchLimit, SearchText, first_id

NO_USERS = "this service does not list users"


def add_users(app: FastAPI, models: Models) -> None:
    """Add the routes that list users and what they have."""
    a_user = str(first_id(models.default.engine.bundle.users))
    kept: dict[str, tuple[str, list[schemas.Example]]] = {}  # model → its bundle, its examples

    @app.get("/examples", response_model=list[schemas.Example])
    async def examples(request: Request, model: ModelName = None) -> Any:
        """Return five users who have little in common, with their items and a short list."""
        served = models.choose(request, model)
        loaded = served.engine.loaded
        if kept.get(served.name, ("", []))[0] != loaded.checksum:
            found = await served.engine.run(example_users, loaded.recommender.bundle)
            kept[served.name] = loaded.checksum, found
        return kept[served.name][1]

    @app.get("/users", response_model=list[TextId])
    async def users(
        request: Request, q: SearchText = "", limit: SearchLimit = 20, model: ModelName = None
    ) -> Any:
        """Find users by a part of their id."""
        engine = models.choose(request, model).engine
        return (await engine.run(find_users, engine.bundle, q, limit)).to_list()

    @app.get("/users/{user_id:path}", response_model=schemas.Owned)
    async def user(
        user_id: Annotated[str, fastapi.Path(max_length=schemas.ID_LENGTH, examples=[a_user])],
        request: Request,
        limit: Annotated[int, fastapi.Query(ge=1, le=1_000)] = 100,
        model: ModelName = None,
    ) -> Any:
        """Return how many items a user has, and the first of them."""
        bundle = models.choose(request, model, user_id).engine.bundle
        (number,) = numbers_of("user", bundle.users, user_id)
        own = items_of(bundle, number)
        items = with_names(bundle, own[:limit]).to_dicts()
        return {"user": bundle.users.values[int(number)], "total": len(own), "items": items}


def refuse_users(app: FastAPI) -> None:
    """Answer that users are not listed."""

    @app.get("/examples", include_in_schema=False)
    @app.get("/users", include_in_schema=False)
    @app.get("/users/{rest:path}", include_in_schema=False)
    async def refuse() -> None:
        raise HTTPException(403, NO_USERS)
