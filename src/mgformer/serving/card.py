"""What the service tells about the model in service: data, protocol, figures, training."""

from pathlib import Path
from typing import Any

from mgformer.errors import BundleError
from mgformer.models import model_summaries
from mgformer.runs.bundle import Bundle
from mgformer.runs.folder import Run

POINTS = 200
"""Points of the training curve, so that the answer does not grow with the number of epochs."""


def model_card(bundle: Bundle, folder: Path) -> dict[str, Any]:
    """Describe the bundle of a folder."""
    record = bundle.record
    return {
        **record.to_mapping(),
        "about": model_summaries().get(record.model),
        "num_users": len(bundle.users),
        "num_items": len(bundle.items),
        "num_pairs": len(bundle.all_pairs),
        "curve": _curve(Run(folder, record)),
    }


def _curve(run: Run) -> list[dict[str, float]]:
    """Return the loss and validation figures of the epochs that chose the model."""
    try:
        log = [entry for entry in run.log if entry["stage"] == "select"]
    except (BundleError, OSError):
        return []  # the log is beside the bundle, and nothing else needs it
    step = max(1, -(-len(log) // POINTS))
    return [
        {name: value for name, value in entry.items() if name not in ("stage", "seconds")}
        for entry in log[::step]
    ]
