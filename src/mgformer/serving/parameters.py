"""Parameters in the address of a request, and the ids that the schema has as examples."""

from typing import Annotated

import fastapi

from mgformer.data.ids import ExternalId, Ids

SearchText = Annotated[str, fastapi.Query(max_length=200)]
SearchLimit = Annotated[int, fastapi.Query(ge=1, le=200)]
ModelName = Annotated[
    str | None, fastapi.Query(description="The model that answers; by default, that of the user.")
]


def first_id(ids: Ids, *, shown: bool = True) -> ExternalId:
    """Return an id as an example."""
    return ids.values[0] if shown and len(ids) else ""
