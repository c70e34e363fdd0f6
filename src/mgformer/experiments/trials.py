"""The trials of a tuning, on disk: one file, rewritten whole after every trial.

The file holds finished trials only: a trial that was killed is made again. (Optuna's own storages
keep a killed trial as running for ever; its journal cannot be read after a truncated line, and one
report to SQLite takes a tenth of a second.)
"""

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from mgformer.errors import BundleError
from mgformer.files import write_text
from mgformer.ranking.metrics import SELECTION_METRIC

NAME = "trials.json"


class Trial(BaseModel):
    """One set of options and its result."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    state: Literal["complete", "pruned", "failed"]
    """pruned: stopped early, because it was worse than earlier trials at the same epoch."""
    options: dict[str, Any]
    """Options that were tried, by dotted name."""
    seconds: float
    curve: dict[int, float] = {}
    """Epoch → validation NDCG@20, over the users that epochs are compared on."""
    valid: dict[str, float] = {}
    """Validation figures of all users; empty if the trial is not complete."""
    epochs: int = 0
    """The best epoch."""
    error: str | None = None
    """Why it failed."""

    @property
    def value(self) -> float:
        """The validation NDCG@20, which trials are compared by."""
        return self.valid[SELECTION_METRIC]


class Tuning(BaseModel):
    """The run that is tuned, and the trials made so far."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    config: dict[str, Any]
    """The given run, which is the first trial."""
    fingerprint: str
    held: list[str]
    """Options that tuning does not change."""
    trials: list[Trial] = []


def load_tuning(folder: Path) -> Tuning | None:
    """Return the tuning in `folder`; None if there is none."""
    path = folder / NAME
    if not path.exists():
        return None
    try:
        return Tuning.model_validate_json(path.read_bytes())
    except ValidationError as error:
        problem = error.errors()[0]["msg"]
        raise BundleError(f"{path}: damaged, not a list of trials ({problem}); delete it") from None


def save_tuning(tuning: Tuning, folder: Path) -> None:
    """Write the tuning, replacing an earlier one."""
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / NAME, tuning.model_dump_json(indent=1) + "\n")
