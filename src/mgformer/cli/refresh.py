"""mgformer refresh: new interactions for a trained recommender, without training."""

from pathlib import Path

from typer import Option

from mgformer.cli.console import out, print_json, working
from mgformer.cli.options import (
    DATA,
    AsJson,
    IdKey,
    RunFolder,
    Sign,
    Signed,
    key_in,
    place,
    settings_option,
)
from mgformer.cli.train import summary
from mgformer.errors import ConfigError


def command(
    run: RunFolder,
    new: str = Option(..., "--with", help=f"New interactions. {DATA}"),
    settings: list[str] = settings_option("Set an option of the data"),
    target: Path | None = place("Folder of the refreshed recommender.", "RUN"),
    key: IdKey = None,
    sign: Sign = None,
    signed: Signed = None,
    as_json: AsJson = False,
) -> None:
    """Add new interactions to a trained recommender, without training.

    Popularity, trend and histories include the new interactions, and new users get lists. What the
    model has learned stays. Pairs with new items are left out: train again, or add the items by
    their attributes first (mgformer add-items). The file is read with the options of the run;
    --set data.time=NAME changes one of them. By default the recommender in RUN is replaced in one
    step.
    """
    from mgformer.locks import locked
    from mgformer.runs.bundle_files import check_folder, load_bundle, save_bundle
    from mgformer.runs.config import with_settings
    from mgformer.runs.hashing import with_hashed_ids
    from mgformer.runs.refresh import read_new, refresh

    folder = target or run
    chosen = with_settings({}, settings)
    for name, value in chosen.items():
        if name != "data" or not isinstance(value, dict):
            raise ConfigError(
                f"--set {name}: a refresh takes options of the data only, such as data.time=NAME"
            )
    check_folder(folder)
    signature = key_in(sign)
    with working(), locked(folder):
        bundle = load_bundle(run, key_in(signed))
        data = read_new(bundle, new, chosen.get("data"))
        done = refresh(bundle, with_hashed_ids(new, data, bundle.record, key))
        save_bundle(done, folder, signature)
    if as_json:
        print_json(summary(done.record, folder))
        return
    counts = done.record.refreshed
    assert counts is not None
    out.print(f"new pairs: {counts.new_pairs:,}; new users: {counts.new_users:,}")
    out.print(f"pairs left out because their items are new: {counts.skipped_items_pairs:,}")
    out.print(f"saved in {folder}")
