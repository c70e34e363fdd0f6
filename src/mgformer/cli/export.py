"""mgformer export: a trained recommender as files for other programs."""

from pathlib import Path

from typer import Option

from mgformer.cli.console import out, print_json, working
from mgformer.cli.options import AsJson, RunFolder, Signed, key_in, place


def command(
    run: RunFolder,
    form: str = Option("parquet", "--format", help="One of parquet, npz, faiss, onnx and card."),
    target: Path | None = place("Folder of the files.", "RUN/export"),
    signed: Signed = None,
    as_json: AsJson = False,
) -> None:
    """Write a recommender as files for other programs.

    --format chooses vectors or item-item weights (parquet, npz), a search index (faiss), an ONNX
    model (onnx), or a model card (card).
    """
    from mgformer.recommend.export import check_form, export  # here, so that --help is instant
    from mgformer.runs.bundle_files import load_bundle

    check_form(form)
    with working():
        folder = target or run / "export"
        done = export(load_bundle(run, key_in(signed)), form, folder)
    if as_json:
        print_json({"folder": str(folder), **done})
        return
    for file in done.pop("files"):
        out.print(f"{folder / file}")
    for name, value in done.items():
        shown = value if isinstance(value, str) else f"{value:.4g}"
        out.print(f"{name.replace('_', ' ')}: {shown}")
