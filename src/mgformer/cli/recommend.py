"""mgformer recommend: lists for users of the training data, or for a new user."""

import sys
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typer import Option

from mgformer.cli.console import err, json_text, out, print_json, print_table, working
from mgformer.cli.options import AsJson, Device, IdKey, RunFolder, Signed, hashed, ids_in, key_in
from mgformer.cli.shards import read_shard
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
HISTORY = """\
Items of a new user, separated by commas; may be repeated. An id with a comma is read as one if it
is known. With one --user: items that this user got after the training."""
FALLBACK = "Recommend popular items, or those of --history, to unknown users."
WHERE = """\
Recommend only items whose attributes fulfill a condition: "genres has Comedy and year >= 1990",
or the same in JSON."""
RULES = "Follow the rules of a TOML file instead of those of the recommender."
DIVERSITY = "How much an item loses by resembling those before it in the list."
AT_MOST = "How many items of a list may share a value of an attribute; can be repeated."
SHOW = "Show these attributes of items, separated by commas; * for all."
SHARD = """\
With --all or --users: only this part of the users, such as 3/8 for the third of eight. The part is
written to NAME-3-of-8 beside --out NAME."""
OUT = "Write user, rank, item, name (if any), score to a .parquet, .csv or .jsonl file."


def command(
    run: RunFolder,
    user: list[str] = Option([], "--user", help="Id of a user; may be repeated."),
    users: Path | None = Option(None, help="File with one user id per line."),
    everyone: bool = Option(False, "--all", help="All users of the training data."),
    history: list[str] = Option([], "--history", help=HISTORY),
    k: int = Option(20, "-k", help="Number of items in a list."),
    candidates: Path | None = Option(None, help="File of items to choose from, one id per line."),
    exclude: Path | None = Option(None, help="File of items to leave out, one id per line."),
    where: str | None = Option(None, metavar="CONDITION", help=WHERE),
    rules: Path | None = Option(None, metavar="FILE", help=RULES),
    diversity: float = Option(0.0, metavar="0 TO 1", help=DIVERSITY),
    at_most: list[str] = Option([], "--at-most", metavar="NAME=COUNT", help=AT_MOST),
    show: str | None = Option(None, metavar="NAMES", help=SHOW),
    with_seen: bool = Option(False, help="Include items that the user already has."),
    fallback: bool = Option(False, "--fallback", help=FALLBACK),
    part: str | None = Option(None, "--shard", metavar="PART/PARTS", help=SHARD),
    target: Path | None = Option(None, "--out", help=OUT),
    device: Device = None,
    key: IdKey = None,
    signed: Signed = None,
    as_json: AsJson = False,
) -> None:
    """Recommend items that a user does not have yet.

    Write the lists of many users to a file: --all --out lists.parquet. After an interruption, the
    same command continues where it stopped. Several computers share the work with --shard. Ids in
    files that are not in the training data are ignored, with a warning.
    """
    from mgformer.recommend.batch import check_target, write_lists, write_target
    from mgformer.recommend.query import ListOptions, Query
    from mgformer.recommend.recommender import Recommender

    ways = bool(user) + (users is not None) + everyone + bool(history)
    if ways != 1 and not (ways == 2 and len(user) == 1 and history):
        raise ConfigError(
            "give exactly one of --user ID, --users FILE, --all, --history i1,i2,…"
            " (or one --user and --history)"
        )
    shard = None if part is None else read_shard(part)
    if shard is not None and not (everyone or users):
        raise ConfigError("--shard divides the users of --all or --users FILE; leave it out")
    if shard is not None and target is not None:
        check_target(target)
        target = shard.name_of(target)
    user = hashed(user, key)
    ListOptions(k=k, where=where)  # what is wrong is reported before the run is loaded
    if target is not None:
        check_target(target)
    with working():
        recommender = Recommender.load(run, key_in(signed), device=device or "auto")
        if rules is not None:
            recommender = recommender.with_rules(rules)
        items = recommender.bundle.items
        if not recommender.bundle.record.histories and not with_seen and not history:
            err.print(
                "warning: this recommender was saved without histories: lists may contain items"
                " that the user already has"
            )
        narrowed: dict[str, Any] = {
            "k": k,
            "exclude_seen": not with_seen,
            "fallback": fallback,
            "where": where,
            "diversity": diversity,
            "at_most": _counts(at_most),
        }
        if show is not None:
            listed = [name.strip() for name in show.split(",")]
            narrowed["attributes"] = listed == ["*"] or listed
        if candidates is not None:
            narrowed["candidates"] = _known_ids(candidates, "item", items)
        if exclude is not None:
            narrowed["exclude"] = _known_ids(exclude, "item", items, required=False)
        if history:
            own = [item for text in history for item in items.split(text)]
            if not own:
                raise DataError(
                    "--history is empty; give items separated by commas: --history i1,i2"
                )
            named = user[0] if user else None
            answer = recommender.answer(Query(user=named, history=own, **narrowed))
            _warn_unknown(answer, items)
            total, answers = 1, iter([answer])
            if target is not None:
                lists = recommender.recommend_for(own, user=named, **narrowed)
                write_target(lists.lazy(), target)
        else:
            asked = _asked_users(recommender, user, users, everyone, key, fallback=fallback)
            if shard is not None:
                asked = asked[shard.slice_of(len(asked))]
            total = len(asked)
            # A generator: no list is made before it is printed.
            answers = recommender.answers(asked if as_json else asked[:MOST_SHOWN], **narrowed)
            if target is not None:
                write_lists(recommender.ranked, asked, ListOptions(**narrowed), target)
    if target is not None:
        err.print(f"wrote {total:,} lists of {k} to {target}", style="dim")
        if as_json:
            print_json({"users": total, "out": str(target)})
    elif as_json:
        # Lists are written one by one: those of all users may not fit into memory.
        sys.stdout.write(f'{{"k": {k}, "users": [')
        for number, answer in enumerate(answers):
            text = json_text(_as_mapping(answer))
            sys.stdout.write(f", {text}" if number else text)
        sys.stdout.write("]}\n")
    else:
        for answer in answers:
            _show(recommender, answer)
        if total > MOST_SHOWN:
            out.print(f"… and {total - MOST_SHOWN:,} more users; use --out or --json for all")


def _counts(named: list[str]) -> dict[str, int] | None:
    """Return the counts of --at-most NAME=COUNT."""
    counts = {}
    for one in named:
        name, _, count = one.rpartition("=")
        if not name or not count.isdecimal():
            raise ConfigError(f"--at-most {one}: expected NAME=COUNT, such as genres=3")
        counts[name] = int(count)
    return counts or None


def _warn_unknown(answer: "Answer", ids: "Ids") -> None:
    """Name the items of the history that were ignored, and suggest similar ids."""
    if not answer.unknown:
        return
    without_number = (item for item in answer.unknown if ids.encode([item])[0] < 0)
    close = ids.closest(next(without_number, ""))
    hint = f" (did you mean {', '.join(close)}?)" if close else ""
    listed = ", ".join(map(str, answer.unknown[:5]))
    err.print(f"warning: not in the training data, ignored: {listed}{hint}")


def _asked_users(
    recommender: "Recommender",
    named: list[str],
    file: Path | None,
    everyone: bool,
    key: Path | None,
    *,
    fallback: bool,
) -> "list[str] | pl.Series":
    from mgformer.recommend.lists import numbers_of

    known = recommender.bundle.users
    if everyone:
        return known.values
    if file is not None:
        return (
            hashed(ids_in(file, "user"), key)
            if fallback
            else _known_ids(file, "user", known, key=key)
        )
    if fallback:
        return named
    try:
        numbers_of("user", known, named)
    except UnknownIdError as error:
        raise DataError(
            f"{error}; for a new user, give --history item1,item2,… or --fallback"
        ) from None
    return named


def _known_ids(
    file: Path, kind: str, known: "Ids", *, required: bool = True, key: Path | None = None
) -> list[str]:
    """Return the ids of a file that are in the training data; the others are ignored."""
    listed = hashed(ids_in(file, kind), key)
    are_known = known.encode(listed) >= 0
    if are_known.all():
        return listed
    first = listed[are_known.argmin()]
    if required and not are_known.any():
        raise DataError(
            f"{file}: none of its {kind}s is in the training data; the first is {first!r}"
        )
    err.print(
        f"warning: {file}: {(~are_known).sum():,} of {len(listed):,} {kind}s are not in the"
        f" training data and are ignored, such as {first!r}"
    )
    return list(compress(listed, are_known))


def _show(recommender: "Recommender", answer: "Answer") -> None:
    title = "for this history" if answer.user is None else f"for {answer.user}"
    if answer.source == "popularity":
        what = "unknown user" if answer.unknown_user else "no known items"
        title += f" ({what}, so these are the most popular)"
    elif answer.source == "attributes":
        title += " (no known items, so these follow the attributes of the user)"
    elif answer.unknown_user:
        title += " (unknown user, so these follow the history)"
    if answer.user is not None and not answer.unknown_user:
        own = recommender.items_of(answer.user)
        names = [row.get("name") or str(row["item"]) for row in own.head(MOST_OWNED).to_dicts()]
        more = f", … ({own.height} in all)" if own.height > MOST_OWNED else ""
        text = f"\n{answer.user} already has: {', '.join(names)}{more}"
        if names:
            out.print(text, style="dim")
    if not answer.items:
        out.print(f"nothing left to recommend {title}")
        return
    named = any(item.name for item in answer.items)
    shown = list(answer.items[0].attributes or ())
    rows = [
        [
            f"{rank}. {i.name or i.item}",
            *([str(i.item)] if named else []),
            *(_as_cell((i.attributes or {})[name]) for name in shown),
            f"{i.score:.4f}",
        ]
        for rank, i in enumerate(answer.items, start=1)
    ]
    columns = ["item", *(["id"] if named else []), *shown, "score"]
    print_table(columns, rows, f"recommended {title}", num_text=len(columns) - 1)


def _as_cell(value: object) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case list():
            return ", ".join(map(str, value))
    return str(value)


def _as_mapping(answer: "Answer") -> dict[str, Any]:
    """Return an answer as plain JSON. Unlike over HTTP, integer ids stay integers."""
    items = [
        {"item": i.item, "score": i.score}
        | ({"name": i.name} if i.name else {})
        | ({} if i.attributes is None else {"attributes": i.attributes})
        for i in answer.items
    ]
    unknown = list(answer.unknown)
    known = {"unknown": unknown, "unknown_user": answer.unknown_user}
    return {"user": answer.user, "items": items, "source": answer.source, **known}
