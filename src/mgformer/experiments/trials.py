"""The trials of a tuning, on disk: one file, rewritten whole after every trial.

A trial that was killed is not in it, so whoever goes on finds finished trials and nothing else.
(Optuna's own storages leave a killed trial running for ever; its journal cannot be read again after
a line that was cut off, and a report to SQLite costs a tenth of a second.)
"""

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from mgformer.errors import BundleError
from mgformer.files import write_text
from mgformer.ranking.metrics import SELECTION_METRIC

NAME = "trials.json"


class Trial(BaseModel):
    """One set of options, tried."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    state: Literal["complete", "pruned", "failed"]
    """pruned: given up, as it did worse than others at the same epoch."""
    options: dict[str, Any]
    """What was tried, by dotted name."""
    seconds: float
    curve: dict[int, float] = {}
    """Validation NDCG@20 by epoch, of the users by whom epochs are compared."""
    valid: dict[str, float] = {}
    """Validation figures of all users; empty if the trial is not complete."""
    epochs: int = 0
    """The best epoch."""
    error: str | None = None
    """Why it failed."""

    @property
    def value(self) -> float:
        """What trials are compared by."""
        return self.valid[SELECTION_METRIC]


class Tuning(BaseModel):
    """What is tuned, and the trials that have been made."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    config: dict[str, Any]
    """The run that was given, which is the first trial."""
    fingerprint: str
    held: list[str]
    """Options that are not looked for."""
    trials: list[Trial] = []


def load_tuning(folder: Path) -> Tuning | None:
    """Return the tuning in `folder`, None if there is none."""
    path = folder / NAME
    if not path.exists():
        return None
    try:
        return Tuning.model_validate_json(path.read_bytes())
    except ValidationError as error:
        problem = error.errors()[0]["msg"]
        raise BundleError(
            f"{path}: not the trials that were written ({problem}); delete it, or choose another"
            " folder"
        ) from None


def save_tuning(tuning: Tuning, folder: Path) -> None:
    """Write the tuning, in place of what is there."""
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / NAME, tuning.model_dump_json(indent=1) + "\n")
