"""mgformer recommend: top-k lists for users of the data, or for somebody new."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import typer
from numpy.typing import NDArray

from mgformer.cli.console import err, out, print_json, print_table, working
from mgformer.errors import ConfigError, DataError, UnknownIdError
from mgformer.lists import COLUMNS, check_target, write_lists, write_whole
from mgformer.recommender import Answer, Recommender

MOST_SHOWN = 20  # users whose lists are printed; more belong in a file


def command(
    run: Path = typer.Argument(help="Folder of a trained recommender."),
    user: list[str] = typer.Option([], "--user", help="A user's id; may be repeated."),
    users: Path | None = typer.Option(None, help="File with one user id per line."),
    everyone: bool = typer.Option(False, "--all", help="All users of the data."),
    history: str | None = typer.Option(
        None, help="Items of somebody who is not in the data, separated by commas."
    ),
    k: int = typer.Option(20, "-k", help="Length of a list."),
    candidates: Path | None = typer.Option(
        None, help="File with the items to choose from, one id per line."
    ),
    exclude: Path | None = typer.Option(
        None, help="File with items never to recommend, one id per line."
    ),
    with_seen: bool = typer.Option(False, help="Recommend also what a user has already."),
    target: Path | None = typer.Option(
        None, "--out", help="Write user, rank, item, score to a .parquet, .csv or .jsonl file."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object."),
) -> None:
    """Recommend the k best items that a user does not have yet.

    Lists for many users belong in a file: --all --out lists.parquet. Interrupted, the same command
    goes on where it was.
    """
    asked = [bool(user), users is not None, everyone, history is not None]
    if sum(asked) != 1:
        raise ConfigError(
            "say for whom: exactly one of --user ID, --users FILE, --all, --history i1,i2,…"
        )
    if k < 1:
        raise ConfigError(f"-k must be at least 1, got {k}")
    if target is not None:
        check_target(target)
    with working():
        recommender = Recommender.load(run)
        choice = _choice(recommender, candidates, exclude)
        items = None if choice is None else recommender.bundle.items.decode(choice)
        if history is not None:
            answers = [_for_history(recommender, history, k, items, not with_seen)]
        else:
            numbers = _wanted_users(recommender, user, users, everyone)
            if target is not None:
                write_lists(
                    recommender, numbers, k, target, candidates=choice, exclude_seen=not with_seen
                )
                err.print(f"{len(numbers):,} lists of {k} in {target}", style="dim")
                return
            wanted = recommender.bundle.users.decode(numbers).to_list()
            answers = list(
                recommender.answers(wanted, k, candidates=items, exclude_seen=not with_seen)
            )
    if target is not None:
        write_whole(_table_of(recommender, answers).lazy(), target)
    elif as_json:
        print_json({"k": k, "users": [as_mapping(answer) for answer in answers]})
    else:
        for answer in answers[:MOST_SHOWN]:
            _show(recommender, answer)
        if len(answers) > MOST_SHOWN:
            out.print(
                f"… and {len(answers) - MOST_SHOWN:,} more users; use --out or --json for all"
            )


def _choice(
    recommender: Recommender, candidates: Path | None, exclude: Path | None
) -> NDArray[np.int32] | None:
    """Return the numbers of the items to choose from; None: all."""
    if candidates is None and exclude is None:
        return None
    if candidates is None:
        choice = np.arange(len(recommender.bundle.items), dtype=np.int32)
    else:
        choice = recommender.candidate_numbers(_ids_in(candidates, "item"))
    if exclude is not None:
        choice = np.setdiff1d(choice, recommender.candidate_numbers(_ids_in(exclude, "item")))
    return choice


def _for_history(
    recommender: Recommender,
    history: str,
    k: int,
    candidates: pl.Series | None,
    exclude_seen: bool,
) -> Answer:
    items = [item.strip() for item in history.split(",") if item.strip()]
    if not items:
        raise DataError("--history is empty; give items separated by commas: --history i1,i2")
    answer = recommender.recommend_for(items, k, candidates=candidates, exclude_seen=exclude_seen)
    if answer.unknown:
        close = recommender.bundle.items.closest(answer.unknown[0])
        hint = f" (did you mean {', '.join(close)}?)" if close else ""
        listed = ", ".join(map(str, answer.unknown[:5]))
        err.print(f"warning: not in the data, passed over: {listed}{hint}", markup=False)
    return answer


def _wanted_users(
    recommender: Recommender, named: list[str], file: Path | None, everyone: bool
) -> NDArray[np.int32]:
    """Return the numbers of the users asked for."""
    if everyone:
        return np.arange(len(recommender.bundle.users), dtype=np.int32)
    try:
        return recommender.numbers_of(named if file is None else _ids_in(file, "user"))
    except UnknownIdError as error:
        raise DataError(f"{error}; for somebody new: --history item1,item2,…") from None


def _ids_in(file: Path, kind: str) -> list[str]:
    """Return the ids in a file, one per line."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"{file}: cannot be read ({error}); expected one {kind} id per line"
        ) from None
    ids = [line.strip() for line in lines if line.strip()]
    if not ids:
        raise DataError(f"{file}: empty, expected one {kind} id per line")
    return ids


def _show(recommender: Recommender, answer: Answer) -> None:
    if answer.user is None:
        title = (
            "for this history" if answer.source == "history" else "nothing known: what is popular"
        )
    else:
        title = f"for {answer.user}"
        number = int(recommender.bundle.users.encode([answer.user])[0])
        liked = recommender.liked(number, 12)
        total = int(np.diff(recommender.bundle.known.indptr)[number])
        more = f", … ({total} in all)" if total > len(liked) else ""
        out.print(
            f"\n{answer.user} already has: {', '.join(liked)}{more}", style="dim", markup=False
        )
    if not answer.items:
        out.print(f"nothing is left to recommend {title}")
        return
    named = any(item.name for item in answer.items)
    rows = [
        [
            f"{rank}. {item.name or item.item}",
            *([str(item.item)] if named else []),
            f"{item.score:.4f}",
        ]
        for rank, item in enumerate(answer.items, start=1)
    ]
    columns = ["item", *(["id"] if named else []), "score"]
    print_table(columns, rows, f"recommended {title}", num_text=len(columns) - 1)


def as_mapping(answer: Answer) -> dict[str, Any]:
    """Return an answer as plain JSON."""
    items = [
        {"item": i.item, "score": i.score} | ({"name": i.name} if i.name else {})
        for i in answer.items
    ]
    return {"user": answer.user, "items": items, "source": answer.source}


def _table_of(recommender: Recommender, answers: Iterable[Answer]) -> pl.DataFrame:
    rows = [
        (answer.user, rank, item.item, item.score)
        for answer in answers
        for rank, item in enumerate(answer.items, start=1)
    ]
    bundle = recommender.bundle
    types = (bundle.users.values.dtype, pl.Int32, bundle.items.values.dtype, pl.Float32)
    return pl.DataFrame(rows, schema=dict(zip(COLUMNS, types, strict=True)), orient="row")
