"""Write a trained recommender as files for other programs.

    parquet   user_vectors.parquet and item_vectors.parquet, with ids
    npz       vectors.npz: users, items, user_ids, item_ids
    faiss     items.faiss, an index of the item vectors; its recall and latency are measured
    onnx      fold_in.onnx, a model that computes the vector of a new user from a history
    card      MODEL_CARD.md: data, protocol, figures, config

The product of the vectors of a user and of an item is the score by which the library ranks. The
vectors of cold users are solved for from their items.

Models that compare items with items have no vectors. They write the matrix of what an item of the
history gives to each item, and an ONNX model that computes scores:

    parquet   item_weights.parquet
    npz       items.npz: item_ids, kappa; item_weights.npz (for scipy.sparse.load_npz), or
              item_weights.npy if all pairs have a weight
    onnx      scores.onnx

A guide adds such a matrix to the score of vectors: guide.parquet, guide.npz (or .npy), or a second
output of the ONNX model. An index finds the nearest vectors. With a guide, the items that the guide
scores highest are candidates too, and all candidates are ordered by the sum.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from mgformer.errors import ConfigError
from mgformer.files import replacing
from mgformer.locks import locked
from mgformer.recommend.export.arrays import to_npz, to_parquet
from mgformer.recommend.export.card import to_card
from mgformer.recommend.export.index import to_faiss
from mgformer.recommend.export.onnx_models import to_onnx
from mgformer.recommend.export.parts import Export
from mgformer.runs.bundle import Bundle
from mgformer.runs.bundle_files import check_folder

FORMS: dict[str, Callable[[Bundle], Export]] = {
    "parquet": to_parquet,
    "npz": to_npz,
    "faiss": to_faiss,
    "onnx": to_onnx,
    "card": to_card,
}


def check_form(form: str) -> None:
    """Refuse an unknown form."""
    if form not in FORMS:
        raise ConfigError(f"--format {form}: expected one of {', '.join(FORMS)}")


def export(bundle: Bundle, form: str, folder: Path) -> dict[str, Any]:
    """Write one form of the recommender to a folder; return the files and what was measured."""
    check_form(form)
    check_folder(folder)
    with locked(folder):
        files, measured = FORMS[form](bundle)
        for name, write in files.items():
            with replacing(folder / name) as draft:
                write(draft)
    return {"files": [*files], **measured}
