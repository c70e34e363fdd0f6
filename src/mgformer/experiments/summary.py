"""The figures of a row of a table: what the runs of one model have in the mean over seeds."""

import statistics
from collections.abc import Mapping, Sequence

from pydantic import BaseModel, ConfigDict

from mgformer.runs.record import Record


class Figure(BaseModel):
    """The mean of one figure over seeds."""

    model_config = ConfigDict(frozen=True)

    mean: float
    deviation: float | None = None
    """Of a sample; None for one seed."""

    def __str__(self) -> str:
        spread = "" if self.deviation is None else f" ± {self.deviation:.4f}"
        return f"{self.mean:.4f}{spread}"


class Summary(BaseModel):
    """The runs of one model on one dataset, with one seed each."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    dataset: str
    fingerprint: str
    protocol: str | None = None
    """None if it was not noted."""
    split: str
    """`split.kind`."""
    refit: bool = False
    """Whether the model was trained again on train and validation before the test."""
    seeds: list[int]
    test: dict[str, Figure]
    valid: dict[str, Figure]
    groups: dict[str, dict[str, Figure]] = {}
    """Popularity group → what its items contribute to the test metrics."""
    epochs: list[int]
    """The epoch that was chosen for each seed; 0 if the model is not trained step by step."""
    minutes: float | None = None
    """Minutes of training, in the mean over seeds."""
    ratio: list[float] | None = None
    """Recall@20 and NDCG@20 as shares of the published ones, if the means above are rounded."""
    commits: list[str]


def figure(values: Sequence[float]) -> Figure:
    """Return mean and deviation of one figure over runs."""
    deviation = statistics.stdev(values) if len(values) > 1 else None
    return Figure(mean=statistics.fmean(values), deviation=deviation)


def summarize(records: Sequence[Record]) -> Summary:
    """Return the figures of runs that differ in their seeds only."""
    first = records[0]
    return Summary(
        dataset=first.dataset,
        fingerprint=first.fingerprint,
        protocol=first.protocol,
        split=first.config["split"]["kind"],
        refit=first.saw_validation,
        seeds=[record.seed for record in records],
        test=_figures([record.test for record in records]),
        valid=_figures([record.valid for record in records]),
        groups={
            name: _figures([record.groups[name] for record in records]) for name in first.groups
        },
        epochs=[record.epochs for record in records],
        minutes=statistics.fmean(record.seconds.get("train", 0) for record in records) / 60,
        commits=sorted({record.commit or record.library for record in records}),
    )


def _figures(parts: Sequence[Mapping[str, float]]) -> dict[str, Figure]:
    return {metric: figure([part[metric] for part in parts]) for metric in parts[0]}
