"""mgformer train: from a dataset to a trained recommender on disk."""

import shlex
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typer import Option

from mgformer.cli import dry_run as estimates
from mgformer.cli.auto import show_auto, warn_if_poor
from mgformer.cli.console import err, out, print_json, print_table, working
from mgformer.cli.durations import seconds_of
from mgformer.cli.options import (
    AsJson,
    AutoOrModel,
    Data,
    Device,
    Sign,
    key_in,
    place,
    settings_option,
)
from mgformer.errors import ConfigError
from mgformer.files import folder_name
from mgformer.models import AUTO
from mgformer.outside import is_outside

if TYPE_CHECKING:
    from mgformer.data.ids import Ids
    from mgformer.runs.config import RunConfig
    from mgformer.runs.record import Record
    from mgformer.training.profile import Profile

BEFORE = """\
Start from this trained recommender: use its options and its weights, and add its pairs to the new
ones."""
NO_HISTORIES = """\
Save the recommender without the pairs of users. Lists may then contain items that a user has."""
BUDGET = """
Time for the choice of a model without --model, such as 90s, 10m or 2h."""
HASH_IDS = """\
Replace user ids by hashes with the key in this file, which is made if it does not exist."""
DRY_RUN = "Only read the data, and show what memory, time and disk the training needs."
MOST_OPERATORS = 12
MOST_TRIED = 100
"""Number of users among whom an example is sought."""
SHOWN = ("recall", "ndcg", "precision", "hitrate", "mrr", "map", "coverage", "novelty", "gini")


def command(
    data: Data = None,
    model: AutoOrModel = None,
    config: Path | None = Option(None, help="A TOML file that describes the run."),
    settings: list[str] = settings_option("Set any option"),
    seed: int | None = Option(None, help="Seed of the split and of the model.", show_default="0"),
    budget: str | None = Option(None, help=BUDGET, metavar="TIME", show_default="2m"),
    run: Path | None = place("Folder of the trained recommender.", "runs/DATASET-MODEL"),
    before: Path | None = Option(None, "--from", help=BEFORE),
    resume: bool = Option(False, "--resume", help="Continue the interrupted run in --out."),
    no_histories: bool = Option(False, "--no-histories", help=NO_HISTORIES),
    hash_ids: Path | None = Option(None, "--hash-ids", metavar="KEYFILE", help=HASH_IDS),
    profile: bool = Option(False, "--profile", help="Only show where the time of a step goes."),
    dry_run: bool = Option(False, "--dry-run", help=DRY_RUN),
    device: Device = None,
    sign: Sign = None,
    as_json: AsJson = False,
) -> None:
    """Train a model on interactions, evaluate it, and save it.

    Without --model, several models are tried, and the one that is best on validation is trained.
    Options live in sections: --set split.kind=time, --set data.sep=';', --set model.l2=300.
    """
    from mgformer.data.dataset import open_dataset
    from mgformer.data.hashed_ids import mark_of
    from mgformer.device import resolve
    from mgformer.locks import locked
    from mgformer.runs import auto, train
    from mgformer.runs import config as configs
    from mgformer.runs.bundle_files import check_folder, load_record
    from mgformer.runs.hashing import hashed_once, key_for_run
    from mgformer.runs.histories import check_leaves_them_out, without_histories
    from mgformer.runs.workspace import load_unfinished, save_run
    from mgformer.world import is_first, is_launched, is_restarted, joined

    if device is not None:
        resolve(device)  # before the data are read
    out.quiet = err.quiet = not is_first()  # one of several processes prints
    resume = resume or is_restarted()
    chosen = [*settings, *([f"train.device={device}"] if device else [])]

    def with_options(raw: dict[str, Any]) -> dict[str, Any]:
        return configs.with_settings(configs.with_choices(raw, data, model, seed), chosen)

    raw, source = (configs.read_config(config) if config else {}), str(config or "options")
    # The user's own options may import a model; those of the earlier run may not.
    configs.import_outside(with_options(raw), source)
    if resume and run and not (config or data):
        raw = _unfinished(run, model) or raw
    if before is not None:
        earlier = {} if config else load_record(before).config
        raw = {**earlier, **raw, "warm_start": str(before)}
    wanted = with_options(raw)
    own = wanted.get("model", {})
    choosing = isinstance(own, dict) and own.get("name", AUTO) == AUTO
    seconds = None if budget is None else seconds_of(budget, "--budget")
    if not choosing and seconds is not None:
        raise ConfigError(
            f"--budget is for the choice of a model; leave it out, or --model {model}"
        )
    if choosing and is_launched():
        raise ConfigError("several processes train one model; name it with --model")
    if choosing and profile:
        raise ConfigError("--profile measures one model; name it with --model")
    if choosing and dry_run:
        raise ConfigError("--dry-run is for one model; name it with --model")
    if dry_run and profile:
        raise ConfigError("--dry-run and --profile: give one of them")
    check = check_leaves_them_out if no_histories else lambda config: None
    runs = None
    if choosing:
        runs = auto.contest(wanted, source, budget=seconds, trusted=False, check=check)
        described = runs.first
    else:
        described = configs.build_config(wanted, source, trusted=False)
        check(described)
    if profile:
        with working():
            found = train.profile_training(described)
        if as_json:
            print_json(asdict(found))
        else:
            show_profile(found)
        return
    folder = run or default_folder(described, AUTO if choosing else described.model_name)
    check_folder(folder)
    if dry_run:
        estimates.dry_run(described, folder, as_json=as_json)
        return
    signature = key_in(sign)  # before hours of training
    earlier_record = None if before is None else load_record(before)
    if earlier_record and bool(earlier_record.hashed_ids) != (hash_ids is not None):
        raise ConfigError(
            f"{before}: user ids there are {'' if earlier_record.hashed_ids else 'not '}hashed;"
            f" {'give' if earlier_record.hashed_ids else 'leave out'} --hash-ids"
        )
    key = None if hash_ids is None else key_for_run(hash_ids, folder)
    if key is not None and earlier_record and earlier_record.hashed_ids != mark_of(key):
        raise ConfigError(f"{hash_ids}: another key than the one that hashed the user ids there")

    def how_to_continue() -> str:
        left = load_unfinished(folder)
        # Before the first checkpoint of this run, the folder may hold one of another run.
        if left is None:
            return ""
        known = runs.configs.values() if runs else [described]
        if not any(left.state["config"] == config.to_mapping() for config in known):
            return ""
        again = ["mgformer", "train", "--resume", "--out", str(folder)]
        named = ["--model", described.model_name] if is_outside(described.model_name) else []
        return f"continue with: {shlex.join(again + named)}"

    with (
        working(how_to_continue),
        joined(resolve(described.train.device)) as world,
        locked(folder if world.leads else None),
    ):
        dataset = None
        if key is not None:
            opened = open_dataset(described.dataset, described.data)
            dataset = hashed_once(described.dataset, opened, key)
        if runs is not None:
            bundle = auto.train_best(runs, dataset, folder=folder, resume=resume)
        else:
            bundle = train.train(described, dataset, folder=folder, resume=resume)
        if key is not None:
            record = bundle.record.model_copy(update={"hashed_ids": mark_of(key)})
            bundle = replace(bundle, record=record)
        if not world.leads:
            return
        if no_histories:
            bundle = without_histories(bundle)
        save_run(bundle, folder, signature)
    if as_json:
        print_json(summary(bundle.record, folder))
    else:
        if bundle.record.auto is not None:
            show_auto(bundle.record.auto, bundle.record.model)
        show_metrics(bundle.record)
        out.print(f"saved in {folder}")
        if hint := _what_to_try(folder, bundle.users):
            out.print(f"try: {hint}", soft_wrap=True)  # in one line, to be copied


def _what_to_try(folder: Path, users: "Ids") -> str:
    """Return a command that a shell takes as it is, for a user whose id can be typed."""
    known = map(str, users.values.head(MOST_TRIED))
    user = next((user for user in known if user.isprintable()), None)
    if user is None or not str(folder).isprintable():
        return ""
    return shlex.join(["mgformer", "recommend", str(folder), "--user", user])


def _unfinished(run: Path, model: str | None) -> dict[str, Any] | None:
    """Return the options of the interrupted run in a folder, unless `model` is another model."""
    from mgformer.runs.workspace import load_unfinished

    left = load_unfinished(run)
    if left is None and model is None:
        raise ConfigError(
            f"{run}: there is no unfinished run to continue; give the data and the model to start"
            " one"
        )
    # A model from outside is named again to import it; it keeps its options.
    stored: dict[str, Any] | None = left.state["config"] if left else None
    if stored and model and not (is_outside(model) and model == stored["model"]["name"]):
        return None
    if stored and "refit" in stored:
        raise ConfigError(f"{run}: the unfinished run there is a refit; use mgformer refit")
    return stored


def default_folder(config: "RunConfig", model: str) -> Path:
    """Return the folder of a run that names none: `runs/DATASET-MODEL`."""
    return Path("runs") / f"{Path(config.dataset).stem}-{folder_name(model)}"


def summary(record: "Record", folder: Path) -> dict[str, Any]:
    """Return the machine-readable result of a run."""
    whole = {**record.to_mapping(), "run": str(folder), "below_popularity": record.is_poor}
    return {name: value for name, value in whole.items() if name not in ("config", "library")}


def show_profile(found: "Profile") -> None:
    """Print the stages of a step and its most expensive operators."""
    total = sum(found.stages.values())
    steps, epoch = found.steps_per_epoch, total * found.steps_per_epoch / 1000
    out.print(f"one step takes {total:.1f} ms; an epoch of {steps:,} steps, {epoch:.0f} s")
    rows = [[name, f"{ms:.2f}", f"{ms / total:.0%}"] for name, ms in found.stages.items()]
    print_table(["stage", "ms", "share"], rows)
    operators = list(found.operators.items())[:MOST_OPERATORS]
    everything = sum(ms for ms, _ in found.operators.values())
    rows = [[n, f"{ms:.2f}", f"{ms / everything:.0%}", f"{c:g}"] for n, (ms, c) in operators]
    print_table(["operator", "ms", "share", "calls"], rows)


def show_metrics(record: "Record") -> None:
    """Print the metrics of a run beside those of popularity."""
    out.print(f"{record.model} on {record.dataset} ({record.fingerprint}), seed {record.seed}")
    out.print(f"protocol: {record.protocol}", style="dim")
    test, valid, popular = record.test, record.valid, record.popularity
    options = record.config["evaluation"]
    ks, own = options["ks"], options.get("metrics") or ()
    middle = 20 if 20 in ks else ks[-1]
    metrics = (*SHOWN, *(name.rpartition(":")[2] for name in own))
    rows = []
    for name in [f"{metric}@{k}" for metric in metrics for k in ks]:
        important = name.startswith(("recall", "ndcg")) or name.endswith(f"@{middle}")
        if important and (name in test or name in valid):
            figures = [part.get(name) for part in (test, popular, valid)]
            rows.append([name, *("–" if f is None else f"{f:.4f}" for f in figures)])
    if rows:
        print_table(["metric", "test", "popularity", "validation"], rows)
    else:
        out.print("no user has held-out items, so there is nothing to measure")
    warn_if_poor(record)
