"""mgformer refit: a tested recommender, trained once more on everything."""

import shlex
from pathlib import Path

import typer

from mgformer.cli.console import INTERRUPTED, fail, out, print_json, working
from mgformer.cli.train import show_metrics, summary
from mgformer.runs.bundle_files import check_folder, load_bundle, save_bundle
from mgformer.runs.refit import refit
from mgformer.training.checkpoint import has_checkpoint, remove_checkpoint


def command(
    run: Path = typer.Argument(help="Folder of a trained recommender."),
    target: Path | None = typer.Option(
        None, "--out", help="Folder of the new one.", show_default="RUN-refit"
    ),
    resume: bool = typer.Option(False, help="Go on with what was interrupted in --out."),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object."),
) -> None:
    """Train a tested recommender once more on everything, held-out pairs too: for use.

    Epochs and scores are as chosen before, and so are the figures: they cannot be measured again.
    """
    folder = target or run.with_name(f"{run.name}-refit")
    check_folder(folder)
    bundle = load_bundle(run)
    try:
        with working():
            done = refit(bundle, folder=folder, resume=resume)
            save_bundle(done, folder)
            remove_checkpoint(folder)
    except KeyboardInterrupt:
        again = shlex.join(["mgformer", "refit", str(run), "--resume", "--out", str(folder)])
        fail(
            f"interrupted{f'; go on with: {again}' if has_checkpoint(folder) else ''}", INTERRUPTED
        )
    if as_json:
        print_json(summary(done.record, folder))
        return
    show_metrics(done.record)
    assert done.record.refit is not None
    pairs, before = done.record.refit.pairs, done.record.refit.held_out_before
    out.print(f"trained on {pairs:,} pairs, {before:,} of which had been held out")
    out.print(f"saved in {folder}")
