"""What add-items and add-users share."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mgformer.cli.console import out, print_json, working
from mgformer.cli.options import data_options, key_in
from mgformer.cli.train import summary

if TYPE_CHECKING:
    from mgformer.data.attributes import Side


def add_and_save(
    side: "Side",
    run: Path,
    file: Path,
    settings: Sequence[str],
    target: Path | None,
    sign: Path | None,
    signed: Path | None,
    as_json: bool,
) -> None:
    """Add the rows of a file to the recommender in a folder, and print what was done."""
    from mgformer.locks import locked
    from mgformer.runs.add import add, read_more
    from mgformer.runs.bundle_files import check_folder, load_bundle, save_bundle

    folder = target or run
    given = data_options(settings).model_dump(exclude_unset=True)
    check_folder(folder)
    signature = key_in(sign)
    with working(), locked(folder):
        bundle = load_bundle(run, key_in(signed))
        done = add(bundle, side, read_more(bundle, side, file, given))
        save_bundle(done.bundle, folder, signature)
    if as_json:
        counts = {"new": done.new, "updated": done.updated}
        print_json({**summary(done.bundle.record, folder), **counts})
        return
    out.print(f"new {side}s: {done.new:,}; updated: {done.updated:,}")
    out.print(f"saved in {folder}")
