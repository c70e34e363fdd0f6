"""`POST /feedback` stores interactions; with several models, a second log says who met which.

Both logs have one file per process, so that workers never wait for each other.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

from fastapi import Body, FastAPI, Request
from starlette.exceptions import HTTPException

from mgformer.data.formats.feedback import EXPOSURES, line_of
from mgformer.data.ids import MAX_INTEGER, ExternalId, Ids
from mgformer.errors import DataError
from mgformer.recommend.answer import Answer
from mgformer.serving import schemas
from mgformer.serving.journal import Journal
from mgformer.serving.limits import Limits
from mgformer.serving.models import Models
from mgformer.serving.monitoring import MODEL, Metrics

OFF = "this service takes no feedback; start it with --feedback FOLDER"


def add_feedback(
    app: FastAPI, journal: Journal | None, models: Models, metrics: Metrics, limits: Limits
) -> None:
    """Add the route that takes feedback; without a journal, it says that feedback is off."""
    if journal is None:

        @app.post("/feedback", include_in_schema=False)
        async def refuse() -> None:
            raise HTTPException(403, OFF)

        return

    bundle = models.default.engine.bundle
    examples = [next(iter(ids.values), "id") for ids in (bundle.users, bundle.items)]
    bodies: SimpleNamespace = schemas.feedback_bodies(limits, *examples)

    @app.post("/feedback", status_code=202)
    async def feedback(  # an old FastAPI does not see that a choice of models is a body
        body: Annotated[bodies.feedback, Body()],  # type: ignore[name-defined]
    ) -> schemas.Accepted:
        """Store one interaction or several. The answer comes when they are on the disk.

        `mgformer refresh` and `mgformer train --from` read them. Users and items may be new.
        """
        given = getattr(body, "interactions", None) or [body]
        bundle, now = models.default.engine.bundle, time.time()
        lines = []
        for one in given:
            entry: dict[str, Any] = {
                "user": stored_id(bundle.users, one.user, "user"),
                "item": stored_id(bundle.items, one.item, "item"),
                "time": now if one.time is None else one.time,
            }
            if one.weight is not None:
                entry["weight"] = one.weight
            lines.append(line_of(entry))
        await journal.add(lines)
        metrics.count_feedback(len(lines))
        return schemas.Accepted(accepted=len(lines))


def stored_id(known: Ids, given: ExternalId, kind: str) -> ExternalId:
    """Return an id as the data have it: text, or a whole number of 64 bits."""
    if known.are_text or not len(known):
        return str(given)
    try:
        number = int(given)
    except ValueError:
        number = MAX_INTEGER + 1
    if not -MAX_INTEGER <= number <= MAX_INTEGER or str(number) != str(given):
        raise DataError(
            f"{kind}: got {str(given)[:60]!r}, expected a whole number of 64 bits, because the"
            f" {kind} ids of the model are whole numbers"
        )
    return number


class Exposures:
    """Notes which user was answered by which model, if there are several."""

    def __init__(self, folder: Path, limits: Limits) -> None:
        self.journal = Journal(folder, EXPOSURES, most_waiting=limits.waiting_feedback)

    def note(self, request: Request, models: Sequence[str], answers: Sequence[Answer]) -> None:
        """Add a line for each answer to a user. It does not wait for the disk."""
        now, request_id = time.time(), request.scope.get("request_id")
        self.journal.add_later(
            [
                line_of(
                    {
                        "time": now,
                        "request": request_id,
                        "user": answer.user,
                        MODEL: model,
                        "items": [item.item for item in answer.items],
                    }
                )
                for model, answer in zip(models, answers, strict=True)
                if answer.user is not None
            ]
        )
