"""mgformer recommend: top-k lists for users of the data, or for somebody new."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import typer
from numpy.typing import NDArray

from mgformer.cli.console import (
    err,
    out,
    print_json,
    print_json_list,
    print_table,
    warn,
    working,
)
from mgformer.data.ids import Ids
from mgformer.errors import ConfigError, DataError, UnknownIdError
from mgformer.recommend.answer import Answer
from mgformer.recommend.batch import COLUMNS, check_target, write_lists, write_whole
from mgformer.recommend.recommender import Recommender

MOST_SHOWN = 20  # users whose lists are printed; more belong in a file


def command(
    run: Path = typer.Argument(help="Folder of a trained recommender."),
    user: list[str] = typer.Option([], "--user", help="A user's id; may be repeated."),
    users: Path | None = typer.Option(None, help="File with one user id per line."),
    everyone: bool = typer.Option(False, "--all", help="All users of the data."),
    history: str | None = typer.Option(
        None,
        help="Items of somebody who is not in the data, separated by commas; with one --user,"
        " what this user has taken since.",
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
    goes on where it was. What files name that is not in the training data is passed over, with a
    warning.
    """
    _check_for_whom(user, users, everyone, history)
    if k < 1:
        raise ConfigError(f"-k must be at least 1, got {k}")
    if target is not None:
        check_target(target)
    with working():
        recommender = Recommender.load(run)
        choice = _narrowed(recommender, candidates, exclude, with_seen)
        if history is not None:
            numbers, answers = None, iter([_for_history(recommender, history, user, k, choice)])
        else:
            numbers = _wanted_users(recommender, user, users, everyone)
            shown = numbers if as_json else numbers[:MOST_SHOWN]
            # Nothing is ranked before it is taken.
            answers = recommender.answers(recommender.bundle.users.decode(shown), k, **choice.ids)
        if target is not None and numbers is not None:
            write_lists(recommender, numbers, k, target, **choice.numbers)
        elif target is not None:
            write_whole(_table_of(recommender, answers).lazy(), target)
    total = 1 if numbers is None else len(numbers)
    if target is not None:
        err.print(f"{total:,} lists of {k} in {target}", style="dim", markup=False)
        if as_json:
            print_json({"users": total, "out": str(target)})
    elif as_json:
        print_json_list({"k": k}, "users", map(as_mapping, answers))
    else:
        for answer in answers:
            _show(recommender, answer)
        if total > MOST_SHOWN:
            out.print(f"… and {total - MOST_SHOWN:,} more users; use --out or --json for all")


class _Narrowed(NamedTuple):
    """What narrows a question, in ids and in numbers."""

    ids: dict[str, Any]
    numbers: dict[str, Any]


def _check_for_whom(
    named: list[str], file: Path | None, everyone: bool, history: str | None
) -> None:
    ways = bool(named) + (file is not None) + everyone + (history is not None)
    if ways != 1 and not (ways == 2 and len(named) == 1 and history is not None):
        raise ConfigError(
            "say for whom: exactly one of --user ID, --users FILE, --all, --history i1,i2,…"
            " (or one --user with the --history since)"
        )


def _narrowed(
    recommender: Recommender, candidates: Path | None, exclude: Path | None, with_seen: bool
) -> _Narrowed:
    items, seen = recommender.bundle.items, {"exclude_seen": not with_seen}
    numbers = {
        name: _known_in(file, "item", items, refuse_none=name == "candidates")
        for name, file in (("candidates", candidates), ("exclude", exclude))
        if file is not None
    }
    ids = {name: items.decode(found) for name, found in numbers.items()}
    return _Narrowed({**ids, **seen}, {**numbers, **seen})


def _for_history(
    recommender: Recommender, history: str, named: list[str], k: int, choice: _Narrowed
) -> Answer:
    items = [item.strip() for item in history.split(",") if item.strip()]
    if not items:
        raise DataError("--history is empty; give items separated by commas: --history i1,i2")
    user = named[0] if named else None
    answer = recommender.recommend_for(items, k, user=user, **choice.ids)
    if answer.unknown:
        ids = recommender.bundle.items
        no_ids = (one for one in answer.unknown if ids.encode([one])[0] < 0)
        close = ids.closest(next(no_ids, ""))
        hint = f" (did you mean {', '.join(close)}?)" if close else ""
        listed = ", ".join(map(str, answer.unknown[:5]))
        warn(f"not in the training data, passed over: {listed}{hint}")
    return answer


def _wanted_users(
    recommender: Recommender, named: list[str], file: Path | None, everyone: bool
) -> NDArray[np.int32]:
    """Return the numbers of the users asked for."""
    if everyone:
        return np.arange(len(recommender.bundle.users), dtype=np.int32)
    if file is not None:
        return _known_in(file, "user", recommender.bundle.users, refuse_none=True)
    try:
        return recommender.numbers_of(named)
    except UnknownIdError as error:
        raise DataError(f"{error}; for somebody new: --history item1,item2,…") from None


def _known_in(file: Path, kind: str, ids: Ids, *, refuse_none: bool) -> NDArray[np.int32]:
    """Return the numbers of the ids in a file; lists age, and unknown ones are passed over."""
    listed = _ids_in(file, kind)
    numbers = ids.encode(listed)
    unknown = np.flatnonzero(numbers < 0)
    if len(unknown):
        first = listed[int(unknown[0])]
        if refuse_none and len(unknown) == len(listed):
            raise DataError(
                f"{file}: none of its {kind}s is in the training data; the first is {first!r}"
            )
        count = f"{len(unknown):,} of {len(listed):,} {kind}s"
        warn(f"{file}: {count} are not in the training data, passed over, such as {first!r}")
    return numbers[numbers >= 0]


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
        popular = ", nothing known: what is popular" if answer.source == "popularity" else ""
        title = f"for {answer.user}{popular}"
        number = int(recommender.bundle.users.encode([answer.user])[0])
        liked = recommender.liked(number, 12)
        total = int(np.diff(recommender.bundle.known.indptr)[number])
        more = f", … ({total} in all)" if total > len(liked) else ""
        out.print(
            f"\n{answer.user} already has: {', '.join(liked)}{more}", style="dim", markup=False
        )
    if not answer.items:
        out.print(f"nothing is left to recommend {title}", markup=False)
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
    return {
        "user": answer.user,
        "items": items,
        "source": answer.source,
        "unknown": list(answer.unknown),
    }


def _table_of(recommender: Recommender, answers: Iterable[Answer]) -> pl.DataFrame:
    rows = [
        (answer.user, rank, item.item, item.score)
        for answer in answers
        for rank, item in enumerate(answer.items, start=1)
    ]
    bundle = recommender.bundle
    types = (bundle.users.values.dtype, pl.Int32, bundle.items.values.dtype, pl.Float32)
    return pl.DataFrame(rows, schema=dict(zip(COLUMNS, types, strict=True)), orient="row")
