"""mgformer refit: a tested recommender, trained again on all its pairs."""

import shlex
from pathlib import Path

from typer import Option

from mgformer.cli.console import out, print_json, working
from mgformer.cli.options import (
    AsJson,
    Device,
    OutsideModel,
    RunFolder,
    Sign,
    Signed,
    key_in,
    place,
)
from mgformer.cli.train import show_metrics, summary
from mgformer.errors import ConfigError


def command(
    run: RunFolder,
    target: Path | None = place("Folder of the new recommender.", "RUN-refit"),
    model: OutsideModel = None,
    resume: bool = Option(False, "--resume", help="Continue the interrupted refit in --out."),
    device: Device = None,
    sign: Sign = None,
    signed: Signed = None,
    as_json: AsJson = False,
) -> None:
    """Train a tested recommender again on all its pairs, for production.

    The held-out pairs are included. Epochs and score stay as they were chosen on validation. The
    record keeps the figures of the tested model, because no pairs are left to test on.
    """
    from mgformer.locks import locked
    from mgformer.models import import_model
    from mgformer.runs.bundle_files import check_folder, load_bundle
    from mgformer.runs.refit import refit
    from mgformer.runs.workspace import save_run
    from mgformer.training.checkpoint import has_checkpoint

    folder = target or run.with_name(f"{run.name}-refit")
    check_folder(folder)
    key = key_in(sign)
    bundle = load_bundle(run, key_in(signed))
    if model is not None:
        if model != bundle.record.model:
            raise ConfigError(f"{run}: the model there is {bundle.record.model}, got {model}")
        import_model(model)

    def how_to_continue() -> str:
        again = ["mgformer", "refit", str(run), "--resume", "--out", str(folder)]
        again += ["--model", model] if model else []
        again += ["--device", device] if device else []
        return f"continue with: {shlex.join(again)}" if has_checkpoint(folder) else ""

    with working(how_to_continue), locked(folder):
        done = refit(bundle, folder=folder, resume=resume, device=device)
        save_run(done, folder, key)
    if as_json:
        print_json(summary(done.record, folder))
        return
    show_metrics(done.record)
    assert done.record.refit is not None
    pairs, before = done.record.refit.pairs, done.record.refit.held_out_before
    how = "held out or added before" if bundle.record.refreshed else "held out before"
    out.print(f"trained on {pairs:,} pairs, {before:,} of them {how}")
    out.print(f"saved in {folder}")
