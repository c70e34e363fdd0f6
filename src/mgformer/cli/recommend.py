"""mgformer recommend: top-k lists for users of the data, or for somebody new."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import typer

from mgformer.cli.console import err, out, print_json, print_table, working
from mgformer.errors import ConfigError, DataError
from mgformer.recommender import Answer, Recommender

WRITERS = {".parquet": "write_parquet", ".csv": "write_csv", ".jsonl": "write_ndjson"}
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
    target: Path | None = typer.Option(
        None, "--out", help="Write user, rank, item, score to a .parquet, .csv or .jsonl file."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object."),
) -> None:
    """Recommend the k best items that a user does not have yet."""
    asked = [bool(user), users is not None, everyone, history is not None]
    if sum(asked) != 1:
        raise ConfigError(
            "say for whom: exactly one of --user ID, --users FILE, --all, --history i1,i2,…"
        )
    if k < 1:
        raise ConfigError(f"-k must be at least 1, got {k}")
    if target is not None:
        _check_target(target)
    with working():
        recommender = Recommender.load(run)
        if history is not None:
            answers = [_for_history(recommender, history, k)]
        else:
            wanted = _wanted_users(recommender, user, users, everyone)
            if target is not None:
                _write(recommender, wanted, k, target)
                err.print(f"{len(wanted):,} lists of {k} in {target}", style="dim")
                return
            answers = list(recommender.answers(wanted, k))
    if target is not None:
        _write_whole(_table_of(answers), target)
    elif as_json:
        print_json({"k": k, "users": [_as_mapping(answer) for answer in answers]})
    else:
        for answer in answers[:MOST_SHOWN]:
            _show(recommender, answer)
        if len(answers) > MOST_SHOWN:
            out.print(
                f"… and {len(answers) - MOST_SHOWN:,} more users; use --out or --json for all"
            )


def _for_history(recommender: Recommender, history: str, k: int) -> Answer:
    items = [item.strip() for item in history.split(",") if item.strip()]
    if not items:
        raise DataError("--history is empty; give items separated by commas: --history i1,i2")
    answer = recommender.recommend_for(items, k)
    if answer.unknown:
        close = recommender.bundle.items.closest(answer.unknown[0])
        hint = f" (did you mean {', '.join(close)}?)" if close else ""
        listed = ", ".join(map(str, answer.unknown[:5]))
        err.print(f"warning: not in the data, passed over: {listed}{hint}", markup=False)
    return answer


def _wanted_users(
    recommender: Recommender, named: list[str], file: Path | None, everyone: bool
) -> Sequence[str | int]:
    if everyone:
        return recommender.bundle.users.values.to_list()
    if file is None:
        return named
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"{file}: cannot be read ({error}); expected one user id per line"
        ) from None
    ids = [line.strip() for line in lines if line.strip()]
    if not ids:
        raise DataError(f"{file}: empty, expected one user id per line")
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


def _as_mapping(answer: Answer) -> dict[str, Any]:
    items = [
        {"item": i.item, "score": i.score} | ({"name": i.name} if i.name else {})
        for i in answer.items
    ]
    return {"user": answer.user, "items": items, "source": answer.source}


def _check_target(target: Path) -> None:
    if target.suffix not in WRITERS:
        raise ConfigError(f"--out {target}: expected a name ending in {', '.join(WRITERS)}")
    if not target.parent.is_dir():
        raise ConfigError(f"--out {target}: no folder {target.parent}; make it first")


def _write(recommender: Recommender, users: Sequence[str | int], k: int, target: Path) -> None:
    numbers = recommender.numbers_of(users)
    found, _ = recommender.rank(numbers, k)
    _write_whole(
        recommender.table_of(numbers, found).select("user", "rank", "item", "score"), target
    )


def _table_of(answers: Iterable[Answer]) -> pl.DataFrame:
    rows = [
        {"user": answer.user, "rank": rank, "item": item.item, "score": item.score}
        for answer in answers
        for rank, item in enumerate(answer.items, start=1)
    ]
    return pl.DataFrame(rows, schema_overrides={"rank": pl.Int32, "score": pl.Float32})


def _write_whole(table: pl.DataFrame, target: Path) -> None:
    """Write to a draft beside the target and rename it: nobody ever sees half a file."""
    draft = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        getattr(table, WRITERS[target.suffix])(draft)
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)
