"""The record of a run: what was trained on what, how, and how good it is."""

import subprocess
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from mgformer.errors import BundleError
from mgformer.ranking.metrics import SELECTION_METRIC
from mgformer.ranking.score import Chosen, Kind, Weights
from mgformer.runs.config import RunConfig, build_config

Part = Literal["valid", "test", "popularity"]
Figures = dict[str, float]
"""metric@k → mean over users."""


class Refit(BaseModel):
    """A training on all pairs, after the test."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    pairs: int
    held_out_before: int
    """Pairs that the tested model was not trained on."""
    seconds: float
    library: str
    commit: str | None = None


class Refreshed(BaseModel):
    """New pairs that were added without training."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    pairs: int
    """All pairs, with the new ones."""
    trained_pairs: int
    """Pairs that the model was trained on."""
    new_pairs: int
    """Pairs that the last refresh added."""
    new_users: int
    """Users that the last refresh added."""
    skipped_items_pairs: int
    """Pairs that the last refresh left out, because the model does not know their items."""
    seconds: float
    library: str
    commit: str | None = None


class Forgotten(BaseModel):
    """Users whose pairs were deleted after the training; the record does not name them."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    users: int
    """Users forgotten since the model was trained."""
    pairs: int
    """Pairs of these users."""
    library: str
    commit: str | None = None


class ColdSetting(BaseModel):
    """How something was predicted for items without interactions."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    penalty: float
    """Of the regression on attributes, chosen by cross-validation."""
    factor: float
    """Of words of text, chosen with it; 0 means that they were left out."""


class Added(BaseModel):
    """Items and users that were added after the training, known by their attributes."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    items: int = 0
    """Items added since the model was trained."""
    users: int = 0
    """Users added since the model was trained."""
    library: str
    commit: str | None = None


class Contestant(BaseModel):
    """A model that was tried because the user named none."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    model: str
    valid: Figures = {}
    """Recall@20 and NDCG@20 on validation; empty if the model was skipped."""
    earlier: float | None = None
    """NDCG@20 on earlier windows, each trained on what came before; None if none was needed."""
    seconds: float = 0.0
    """Training and validation, on all windows."""
    epochs: int = 0
    """The best epoch; 0 if the model is not trained step by step."""
    stopped: bool = False
    """Whether the budget ended its training."""
    skipped: str | None = None
    """Why it was not tried."""


class Auto(BaseModel):
    """How the model of a run was chosen on validation."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    budget: float
    """Seconds for the choice."""
    seconds: float
    """Seconds that it took."""
    windows: int
    """Parts of the data on which models were compared: validation, and windows before it."""
    users: int
    """Users who were ranked, counted once for each window."""
    reason: str
    contestants: list[Contestant]
    """In the order in which they were tried."""


class Record(BaseModel):
    """Everything that a finished run says about itself; plain JSON when it is written."""

    # Records of older versions lack some fields: those have defaults.
    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    model: str
    """Name of the model, or `package.module:Class`."""
    dataset: str
    fingerprint: str
    """Counts and hash of the pairs of the dataset."""
    protocol: str
    """How the split was made and what was ranked, in one line."""
    seed: int
    valid: Figures = {}
    test: Figures = {}
    groups: dict[str, Figures] = {}
    """Popularity group → what its items contribute to the test metrics."""
    ages: dict[str, Figures] = {}
    """Age of items → what they contribute to the test metrics, and as `possible` the recall of
    finding all of them; empty if times are not known."""
    seconds: dict[str, float] = {}
    """prepare, train, evaluate → seconds."""
    peak_mb: int | None = None
    """Most memory that the process held at once."""
    epochs: int = 0
    """The epoch that was chosen; 0 if the model is not trained step by step."""
    score: Kind | None = None
    """How embeddings are compared; None if the model has none."""
    gamma: float | None = None
    """The weight of popularity in the score."""
    delta: float | None = None
    """The weight of the guide in the score; None without a guide."""
    eta: float | None = None
    """The weight of the trend in the score; None if time is not used."""
    kappa: float | None = None
    """How fast the items of a history age; None if time is not used, or no history."""
    validation_trained: bool | None = None
    """Whether the tested model was trained on validation too; None in records of older versions."""
    cold: dict[str, ColdSetting] | None = None
    """What was predicted for items without interactions: vectors, columns or factors."""
    config: dict[str, Any]
    """The run as `build_config` takes it."""
    library: str = "unknown"
    """Version of mgformer."""
    commit: str | None = None
    """Commit of the code, if it ran from a checkout."""
    popularity: Figures = {}
    """Test metrics of recommending the most popular items."""
    auto: Auto | None = None
    """Set if the model was chosen because the user named none."""
    refit: Refit | None = None
    """Set if the model was trained again on everything after the test."""
    refreshed: Refreshed | None = None
    """Set if pairs were added after the training."""
    forgotten: Forgotten | None = None
    """Set if users were forgotten after the training."""
    added: Added | None = None
    """Set if items or users were added after the training."""
    histories: bool = True
    """False if the pairs of all users were left out of the bundle."""
    hashed_ids: str | None = None
    """Set if user ids are keyed hashes: a mark of the key, which tells a wrong key."""

    @property
    def chosen(self) -> Chosen:
        """What was chosen on validation."""
        weights = Weights(self.score, self.gamma, self.delta, self.eta, self.kappa)
        return Chosen(self.epochs, weights)

    @property
    def is_poor(self) -> bool:
        """Whether recommending the most popular items is better, or as good, on test."""
        ours, theirs = (figures.get(SELECTION_METRIC) for figures in (self.test, self.popularity))
        return ours is not None and theirs is not None and ours <= theirs

    @property
    def saw_validation(self) -> bool:
        """Whether the tested model was trained on validation too."""
        if self.validation_trained is None:
            return bool(self.config.get("split", {}).get("refit"))
        return self.validation_trained

    def figures(self, part: Part) -> Figures:
        """Return the figures of a part; empty if nothing was measured."""
        found: Figures = getattr(self, part)
        return found

    def run_config(self) -> RunConfig:
        """Return the config of the run; a model from outside must have been imported before."""
        return build_config(self.config, "the record of the run", trusted=False)

    def to_mapping(self) -> dict[str, Any]:
        """Return the record as plain JSON values."""
        whole = self.model_dump(mode="json")
        optional = ("auto", "cold", "refit", "refreshed", "forgotten", "added", "hashed_ids")
        unset = {name for name in optional if whole[name] is None}
        unset |= {"histories"} if self.histories else set()
        return {name: value for name, value in whole.items() if name not in unset}


def read_record(mapping: object, source: str) -> Record:
    """Check a record that was read from a file."""
    try:
        return Record.model_validate(mapping)
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(map(str, problem["loc"])) or "record"
        raise BundleError(
            f"{source}: not a usable record of a run ({where}: {problem['msg']}); train it again"
        ) from None


def commit_of_code() -> str | None:
    """Return the commit of the running code, marked if files changed; None if it is installed."""
    here = Path(__file__).parent
    if "site-packages" in here.parts:  # it may lie inside another repository
        return None
    command = ["git", "-C", str(here), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None
