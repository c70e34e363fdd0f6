"""The rows of the paper's tables: which run each row is, and where its runs are stored.

Runs are stored in `<out>/<dataset>/<name>/seed-<n>`. Tables share them: a run that exists is not
repeated.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from mgformer.errors import ConfigError
from mgformer.experiments import paper
from mgformer.experiments.tables import paired_tests
from mgformer.experiments.variants import AS_IT_IS, VARIANTS, start_of
from mgformer.files import folder_name
from mgformer.progress import phase
from mgformer.ranking.significance import PairedTest
from mgformer.runs.config import build_config, read_config, with_settings
from mgformer.runs.folder import Run, check_config, ensure_run, find_run

_PACKAGED = Path(__file__).parent.parent / "configs"
_CHECKOUT = Path(__file__).parents[3] / "configs"
PRESETS = _PACKAGED if _PACKAGED.is_dir() else _CHECKOUT
"""One complete run per file, `<dataset>/<model>.toml`: in the installed package, or beside src."""
PAPER_SPLIT = {"kind": "ratio", "valid": 0.1, "test": 0.1}
"""80/10/10 per user at random."""
REFERENCE = "amazon-beauty"
"""Datasets without a preset of their own take the one of this dataset."""
SIMPLE = ("popularity", "itemknn", "rp3beta", "puresvd", "ials", "ease", "gfcf")
PUBLISHED = (
    "bprmf", "lightgcn", "sgl", "gotnet", "simgcl", "gformer", "directau", "ultragcn", "mgformer",
)  # fmt: skip
TABLE2_MODELS = (*SIMPLE, *PUBLISHED)
FIGURE2_MODELS = ("lightgcn", "directau", "mgformer")


class Row(NamedTuple):
    """A line of a table."""

    name: str
    folder: str
    raw: Mapping[str, Any]
    """The run, as `build_config` takes it; the seed is set for each run."""
    paper: paper.Figures | None
    against: str
    """The row that it is tested against; its own name if it is not tested."""


def preset(dataset: str, name: str) -> dict[str, Any] | None:
    """Return a preset as `build_config` takes it; None if the dataset has none of this name."""
    path = PRESETS / dataset / f"{name}.toml"
    return read_config(path) if path.exists() else None


def table2_rows(dataset: str, models: Sequence[str] = TABLE2_MODELS) -> list[Row]:
    """Return the rows of table 2: every model with the paper's split."""
    stated = paper.TABLE2.get(dataset, {})
    return [
        Row(name, name, with_paper_split(dataset, name), stated.get(name), "mgformer")
        for name in in_order(models, TABLE2_MODELS, "model")
    ]


def table3_rows(dataset: str, variants: Sequence[str] = tuple(VARIANTS)) -> list[Row]:
    """Return the rows of table 3: MGFormer with one thing changed at a time."""
    base = with_paper_split(dataset, "mgformer")
    stated = paper.TABLE3 if dataset == REFERENCE else {}
    return [
        Row(
            name,
            # The preset itself is a row of table 2.
            "mgformer" if name == AS_IT_IS else f"mgformer-{folder_name(name.lower())}",
            with_settings(base, VARIANTS[name]),
            stated.get(name),
            start_of(name),
        )
        for name in in_order(variants, tuple(VARIANTS), "variant")
    ]


def with_paper_split(dataset: str, model: str) -> dict[str, Any]:
    """Return a model's run on a dataset with the paper's split.

    The options come from the first of these that exists: the preset of this dataset, if it has the
    paper's split or belongs to a simple model, whose options were chosen on these data; the preset
    of Beauty, if it has the paper's split; the preset of this dataset for another split; the
    defaults.
    """
    own, reference = preset(dataset, model), preset(REFERENCE, model)
    if own and (model in SIMPLE or _has_paper_split(own)):
        raw = own
    elif reference and _has_paper_split(reference):
        raw = reference
    else:
        raw = own or {"model": {"name": model}}
    return {**raw, "dataset": dataset, "split": PAPER_SPLIT}


def in_order(wanted: Sequence[str], names: Sequence[str], kind: str) -> list[str]:
    """Return the wanted names in the order of the table; refuse unknown ones."""
    for name in wanted:
        if name not in names:
            raise ConfigError(f"no {kind} {name!r}; choose from: {', '.join(names)}")
    return [name for name in names if name in wanted]


def run_all(rows: Sequence[Row], seeds: Sequence[int], out: Path) -> dict[str, list[Run]]:
    """Train the runs that are missing; return the runs of every row, one for each seed.

    All rows of a seed are trained before the next seed, so that an interrupted table can be
    compared already.
    """
    found: dict[str, list[Run]] = {row.name: [] for row in rows}
    jobs = [(row, seed) for seed in seeds for row in rows]
    with phase("runs", len(jobs)) as advance:
        for row, seed in jobs:
            config = build_config({**row.raw, "seed": seed}, row.name)
            found[row.name].append(ensure_run(config, out / row.folder / f"seed-{seed}"))
            advance(1)
    return found


def find_all(rows: Sequence[Row], out: Path) -> dict[str, list[Run]]:
    """Return the runs that exist, by seed, of the rows that have any; train nothing."""
    found: dict[str, list[Run]] = {}
    for row in rows:
        runs = [run for path in (out / row.folder).glob("seed-*") if (run := find_run(path))]
        for run in runs:
            wanted = build_config({**row.raw, "seed": run.record.seed}, row.name)
            check_config(run.folder, run.record.config, wanted)
        if runs:
            found[row.name] = sorted(runs, key=lambda run: run.record.seed)
    return found


def tests_of(
    rows: Sequence[Row], runs: Mapping[str, Sequence[Run]]
) -> dict[str, dict[str, PairedTest]]:
    """Return the tests of rows against others over users, for the seeds that both rows have."""
    tests = {}
    for row in rows:
        other = {run.record.seed: run for run in runs.get(row.against, ())}
        pairs = [
            (a, other[a.record.seed]) for a in runs.get(row.name, ()) if a.record.seed in other
        ]
        if pairs and row.name != row.against:
            tests[row.name] = paired_tests(
                [ours.per_user for ours, _ in pairs], [theirs.per_user for _, theirs in pairs]
            )
    return tests


def _has_paper_split(raw: Mapping[str, Any]) -> bool:
    return raw.get("split", {}).get("kind") == PAPER_SPLIT["kind"]
