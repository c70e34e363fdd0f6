"""mgformer refit: a tested recommender, trained again on all its pairs."""

import shlex
from pathlib import Path

import typer

from mgformer.cli.console import INTERRUPTED, fail, out, print_json, working
from mgformer.cli.options import AsJson, OutsideModel, RunFolder
from mgformer.cli.train import show_metrics, summary
from mgformer.errors import ConfigError


def command(
    run: RunFolder,
    target: Path | None = typer.Option(
        None, "--out", help="Folder of the new recommender.", show_default="RUN-refit"
    ),
    model: OutsideModel = None,
    resume: bool = typer.Option(False, "--resume", help="Continue the interrupted refit in --out."),
    as_json: AsJson = False,
) -> None:
    """Train a tested recommender again on all its pairs, for production.

    It also trains on the held-out pairs. Epochs and score stay as they were chosen on validation.
    The figures stay those of the tested model, because no pairs are left to test on.
    """
    from mgformer.models import import_model
    from mgformer.runs.bundle_files import check_folder, load_bundle, save_bundle
    from mgformer.runs.refit import refit
    from mgformer.training.checkpoint import has_checkpoint, remove_checkpoint

    folder = target or run.with_name(f"{run.name}-refit")
    check_folder(folder)
    bundle = load_bundle(run)
    if model is not None:
        if model != bundle.record.model:
            raise ConfigError(f"{run}: the model there is {bundle.record.model}, got {model}")
        import_model(model)
    try:
        with working():
            done = refit(bundle, folder=folder, resume=resume)
            save_bundle(done, folder)
            remove_checkpoint(folder)
    except KeyboardInterrupt:
        if not has_checkpoint(folder):
            fail("interrupted", INTERRUPTED)
        again = ["mgformer", "refit", str(run), "--resume", "--out", str(folder)]
        named = ["--model", model] if model else []
        fail(f"interrupted; continue with: {shlex.join(again + named)}", INTERRUPTED)
    if as_json:
        print_json(summary(done.record, folder))
        return
    show_metrics(done.record)
    assert done.record.refit is not None
    pairs, before = done.record.refit.pairs, done.record.refit.held_out_before
    out.print(f"trained on {pairs:,} pairs, {before:,} of them held out before")
    out.print(f"saved in {folder}")
