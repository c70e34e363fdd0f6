"""mgformer recommend: lists for users of the training data, or for a new user."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from mgformer.cli.console import (
    err,
    out,
    print_json,
    print_json_list,
    print_table,
    warn,
    working,
)
from mgformer.cli.options import AsJson, RunFolder
from mgformer.errors import ConfigError, DataError, UnknownIdError

if TYPE_CHECKING:  # imported when a command runs, so that --help is instant
    import polars as pl

    from mgformer.data.ids import Ids
    from mgformer.recommend.answer import Answer
    from mgformer.recommend.recommender import Recommender

MOST_SHOWN = 20
"""Number of users whose lists are printed without --json."""
MOST_OWNED = 12
"""Number of items that are printed for "already has"."""


def command(
    run: RunFolder,
    user: list[str] = typer.Option([], "--user", help="Id of a user; may be repeated."),
    users: Path | None = typer.Option(None, help="File with one user id per line."),
    everyone: bool = typer.Option(False, "--all", help="All users of the training data."),
    history: str | None = typer.Option(
        None,
        help="Items of a new user, separated by commas. With one --user: items that this user got"
        " after the training.",
    ),
    k: int = typer.Option(20, "-k", help="Number of items in a list."),
    candidates: Path | None = typer.Option(
        None, help="File with the items to choose from, one id per line."
    ),
    exclude: Path | None = typer.Option(
        None, help="File with items that are never recommended, one id per line."
    ),
    with_seen: bool = typer.Option(False, help="Include items that the user already has."),
    target: Path | None = typer.Option(
        None, "--out", help="Write user, rank, item, score to a .parquet, .csv or .jsonl file."
    ),
    as_json: AsJson = False,
) -> None:
    """Recommend items that a user does not have yet.

    Write the lists of many users to a file: --all --out lists.parquet. After an interruption, the
    same command continues where it stopped. Ids in files that are not in the training data are
    ignored, with a warning.
    """
    from mgformer.recommend.batch import COLUMNS, check_target, write_lists, write_target
    from mgformer.recommend.query import ListOptions, Query
    from mgformer.recommend.recommender import Recommender

    _check_who(user, users, everyone, history)
    ListOptions(k=k)  # a wrong k is reported before the run is loaded
    if target is not None:
        check_target(target)
    with working():
        recommender = Recommender.load(run)
        items = recommender.bundle.items
        narrowed: dict[str, Any] = {"k": k, "exclude_seen": not with_seen}
        if candidates is not None:
            narrowed["candidates"] = _known_ids(candidates, "item", items, required=True)
        if exclude is not None:
            narrowed["exclude"] = _known_ids(exclude, "item", items, required=False)
        if history is not None:
            named, own = user[0] if user else None, _split(history)
            answer = recommender.answer(Query(user=named, history=own, **narrowed))
            _warn_unknown(answer, items)
            total, answers = 1, iter([answer])
            if target is not None:
                lists = recommender.recommend_for(own, user=named, **narrowed)
                write_target(lists.select(COLUMNS).lazy(), target)
        else:
            asked = _asked_users(recommender, user, users, everyone)
            total = len(asked)
            # A generator: no list is made before it is printed.
            answers = recommender.answers(asked if as_json else asked[:MOST_SHOWN], **narrowed)
            if target is not None:
                write_lists(recommender.bundle, asked, ListOptions(**narrowed), target)
    if target is not None:
        err.print(f"wrote {total:,} lists of {k} to {target}", style="dim", markup=False)
        if as_json:
            print_json({"users": total, "out": str(target)})
    elif as_json:
        print_json_list({"k": k}, "users", map(_as_mapping, answers))
    else:
        for answer in answers:
            _show(recommender, answer)
        if total > MOST_SHOWN:
            out.print(f"… and {total - MOST_SHOWN:,} more users; use --out or --json for all")


def _check_who(named: list[str], file: Path | None, everyone: bool, history: str | None) -> None:
    ways = bool(named) + (file is not None) + everyone + (history is not None)
    if ways != 1 and not (ways == 2 and len(named) == 1 and history is not None):
        raise ConfigError(
            "give exactly one of --user ID, --users FILE, --all, --history i1,i2,…"
            " (or one --user and --history)"
        )


def _split(history: str) -> list[str]:
    items = [item.strip() for item in history.split(",") if item.strip()]
    if not items:
        raise DataError("--history is empty; give items separated by commas: --history i1,i2")
    return items


def _warn_unknown(answer: "Answer", ids: "Ids") -> None:
    """Name the items of the history that were ignored, and suggest similar ids."""
    if not answer.unknown:
        return
    without_number = (item for item in answer.unknown if ids.encode([item])[0] < 0)
    close = ids.closest(next(without_number, ""))
    hint = f" (did you mean {', '.join(close)}?)" if close else ""
    listed = ", ".join(map(str, answer.unknown[:5]))
    warn(f"not in the training data, ignored: {listed}{hint}")


def _asked_users(
    recommender: "Recommender", named: list[str], file: Path | None, everyone: bool
) -> "list[str] | pl.Series":
    from mgformer.recommend.lists import numbers_of

    known = recommender.bundle.users
    if everyone:
        return known.values
    if file is not None:
        return _known_ids(file, "user", known, required=True)
    try:
        numbers_of("user", recommender.bundle.users, named)
    except UnknownIdError as error:
        raise DataError(f"{error}; for a new user, give --history item1,item2,…") from None
    return named


def _known_ids(file: Path, kind: str, known: "Ids", *, required: bool) -> list[str]:
    """Return the ids of a file that are in the training data; the others are ignored."""
    listed = _read_ids(file, kind)
    numbers = known.encode(listed)
    found = [one for one, number in zip(listed, numbers, strict=True) if number >= 0]
    if len(found) < len(listed):
        first = next(one for one, number in zip(listed, numbers, strict=True) if number < 0)
        if required and not found:
            raise DataError(
                f"{file}: none of its {kind}s is in the training data; the first is {first!r}"
            )
        count = f"{len(listed) - len(found):,} of {len(listed):,} {kind}s"
        warn(f"{file}: {count} are not in the training data and are ignored, such as {first!r}")
    return found


def _read_ids(file: Path, kind: str) -> list[str]:
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


def _show(recommender: "Recommender", answer: "Answer") -> None:
    title = "for this history" if answer.user is None else f"for {answer.user}"
    if answer.source == "popularity":
        title += " (no known items, so these are the most popular)"
    if answer.user is not None:
        own = recommender.items_of(answer.user)
        names = [row.get("name") or str(row["item"]) for row in own.head(MOST_OWNED).to_dicts()]
        more = f", … ({own.height} in all)" if own.height > MOST_OWNED else ""
        text = f"\n{answer.user} already has: {', '.join(names)}{more}"
        out.print(text, style="dim", markup=False)
    if not answer.items:
        out.print(f"nothing left to recommend {title}", markup=False)
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


def _as_mapping(answer: "Answer") -> dict[str, Any]:
    """Return an answer as plain JSON. Unlike over HTTP, integer ids stay integers."""
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
