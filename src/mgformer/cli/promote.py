"""mgformer promote: a newly trained recommender takes the place of the one before, or does not."""

from pathlib import Path

from typer import Argument, Option

from mgformer.cli.console import out, print_json, working
from mgformer.cli.options import AsJson, Sign, Signed, key_in
from mgformer.errors import ConfigError, MgformerError

NEW = "Folder of the newly trained recommender."
RUN = "Folder of the recommender that it replaces."
TOLERANCE = "Share of NDCG@20 that the new one may lose."
FORCE = "Replace without a comparison."


def command(
    new: Path = Argument(help=NEW),
    run: Path = Argument(help=RUN),
    tolerance: float = Option(0.0, min=0.0, max=1.0, help=TOLERANCE),
    force: bool = Option(False, "--force", help=FORCE),
    sign: Sign = None,
    signed: Signed = None,
    as_json: AsJson = False,
) -> None:
    """Replace a recommender by a new one, if the new one is not worse.

    Both rank what was held out from the new one, after the old one is refreshed with the pairs that
    the new one was trained on. If the new one is worse, nothing changes and the exit code is 2. If
    RUN has no recommender yet, it gets the new one.
    """
    from mgformer.experiments.promotion import compare_to
    from mgformer.locks import locked
    from mgformer.runs.bundle_files import check_folder, load_bundle, save_bundle
    from mgformer.runs.bundle_manifest import MANIFEST

    if new.resolve() == run.resolve():
        raise ConfigError(f"{new}: got one folder twice; name the new recommender and the old one")
    check_folder(run)
    key, signature = key_in(signed), key_in(sign)
    with working(), locked(run):
        candidate = load_bundle(new, key)
        found = None
        if not force and (run / MANIFEST).exists():
            found = compare_to(candidate, load_bundle(run, key))
            if not found.is_good_enough(tolerance):
                raise MgformerError(
                    f"{new} is worse than {run}, which stays: NDCG@20 {found.new:.4f} against"
                    f" {found.old:.4f} for {found.users:,} users; try --tolerance or --force"
                )
        save_bundle(candidate, run, signature)
    if as_json:
        print_json({"run": str(run), "promoted": True, "ndcg@20": found and found._asdict()})
        return
    if found is not None:
        p_value = "" if found.p_value is None else f", p = {found.p_value:.2g}"
        out.print(
            f"NDCG@20 {found.new:.4f} against {found.old:.4f} for {found.users:,} users{p_value}"
        )
    out.print(f"{new} is now in {run}")
