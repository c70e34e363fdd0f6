"""After `mgformer forget` no file of the folder names the user; others are served as before."""

import json
import shutil
import zipfile
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import safetensors.torch

from mgformer.data.formats.feedback import line_of
from mgformer.errors import UnknownIdError
from mgformer.recommend.forgetting import forget_users
from mgformer.recommend.recommender import Recommender
from mgformer.runs.bundle_files import load_bundle
from mgformer.runs.config import build_config
from mgformer.runs.folder import ensure_run
from tests.command import assert_one_line, mgformer, succeed

USER, OTHER = "amir-186", "elif-004"
MODELS = {
    "guided": ["--set", "train.epochs=2"],
    # Without trend and popularity in the score, so that no count in it changes.
    "directau": [
        *("--set", "train.epochs=2", "--set", "score.kind=cosine", "--set", "score.time=off")
    ],
    "ease": [],
    "ials": ["--set", "score.time=off", "--set", "score.kind=dot"],
    "gfcf": [],
    "popularity": [],
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    for model, options in MODELS.items():
        succeed("train", "demo", "--model", model, "--out", folder / model, *options)
    return folder


@pytest.fixture
def run(request: pytest.FixtureRequest, trained: Path, tmp_path: Path) -> Path:
    """A copy of a run, with everything that commands write into its folder."""
    run = tmp_path / "run"
    shutil.copytree(trained / request.param, run)
    for suffix in ("parquet", "csv", "jsonl"):
        succeed("recommend", run, "--all", "-k", 5, "--out", run / f"lists.{suffix}")
    if request.param not in ("ease", "gfcf"):
        for form in ("parquet", "npz"):
            succeed("export", run, "--format", form)
    (run / "report.html").write_text(f"<p>{USER}</p>")
    (run / ".bundle.json.99.tmp").write_text(USER)
    for drafts in (run, run / ".more.csv.0123456789ab.parts"):
        (drafts / ".drafts-0123abcd-99-0").mkdir(parents=True)
        for name in ("bundle.json", "pairs.safetensors", "feedback-1.jsonl"):
            (drafts / ".drafts-0123abcd-99-0" / name).write_text(USER)
    pl.DataFrame({"user": [USER]}).write_parquet(
        run / ".more.csv.0123456789ab.parts/part-0.parquet"
    )
    safetensors.torch.save_file({}, run / "checkpoint.safetensors", {"mgformer": USER})
    return run


def everything_in(folder: Path) -> bytes:
    """All bytes of a folder, and the content of compressed files."""
    found = []
    for path in folder.rglob("*"):
        found.append(path.name.encode())
        if path.is_file():
            found.append(path.read_bytes())
        if path.suffix == ".parquet":
            found.append(pl.read_parquet(path).write_ndjson().encode())
        if path.suffix == ".npz":
            with zipfile.ZipFile(path) as inside:
                found += [inside.read(name) for name in inside.namelist()]
    return b"\n".join(found)


@pytest.mark.parametrize("run", MODELS, indirect=True)
def test_no_byte_of_a_user_is_left(run: Path) -> None:
    def forms_of(user: str) -> tuple[bytes, bytes]:
        return user.encode(), user.encode("utf-32-le")  # numpy has text as UTF-32

    before = everything_in(run)
    assert forms_of(USER)[0] in before
    old_files = {path.name for path in run.iterdir()}
    shown = succeed("forget", run, "--user", USER)
    assert "forgot users: 1, pairs: " in shown
    after = everything_in(run)
    for form in forms_of(USER):
        assert form not in after
    assert forms_of(OTHER)[0] in after
    assert not {name for name in old_files if name.startswith(("users-", "pairs-", "scorer-"))} & {
        path.name for path in run.iterdir()
    }
    assert not list(run.glob(".*"))
    done = mgformer("recommend", run, "--user", USER)
    assert_one_line(done, f"unknown user '{USER}'")
    record = load_bundle(run).record
    assert record.forgotten is not None
    assert record.forgotten.users == 1
    assert record.protocol.endswith("then users were forgotten, which is not tested")
    for name in ("lists.parquet", "lists.csv", "lists.jsonl"):
        read = {".parquet": pl.read_parquet, ".csv": pl.read_csv, ".jsonl": pl.read_ndjson}
        assert read[Path(name).suffix](run / name)["user"].n_unique() == len(load_bundle(run).users)


def test_it_does_not_matter_where_the_folder_lies(trained: Path, tmp_path: Path) -> None:
    """The names of folders count below the folder, not above it."""
    run = tmp_path / "tensorboard/.a.parts/run"
    shutil.copytree(trained / "popularity", run)
    lists = f"user,item\n{USER},a\n{OTHER},b\n,c\n"  # the last list is that of a history
    (run / "lists.csv").write_text(lists)
    succeed("forget", run, "--user", USER)
    assert (run / "lists.csv").read_text() == lists.replace(f"{USER},a\n", "")


def test_files_that_a_killed_save_left_go_too(trained: Path, tmp_path: Path) -> None:
    """A save that was killed at its end has a new manifest and the old files."""
    run = tmp_path / "run"
    shutil.copytree(trained / "popularity", run)
    old = [path for path in run.iterdir() if path.name.startswith(("users-", "per_user-"))]
    assert len(old) == 2
    kept = {path: path.read_bytes() for path in old}
    succeed("forget", run, "--user", USER)
    for path, content in kept.items():
        path.write_bytes(content)
    assert USER.encode() in everything_in(run)
    assert_one_line(mgformer("forget", run, "--user", USER), f"unknown user '{USER}'")
    assert USER.encode() not in everything_in(run)


def test_a_file_that_only_has_the_name_of_a_log_is_a_table(trained: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(trained / "popularity", run)
    lines = [json.dumps({"user": user, "item": "i"}) + "\n" for user in (USER, OTHER)]
    (run / "feedback-export.jsonl").write_text("".join(lines))
    succeed("forget", run, "--user", USER)
    assert json.loads((run / "feedback-export.jsonl").read_text())["user"] == OTHER
    done = mgformer("forget", run, "--user", OTHER, "--feedback", run)
    assert_one_line(done, "no log of feedback here")


@pytest.mark.parametrize("below", [True, False])
def test_no_line_of_a_user_stays_in_the_logs(trained: Path, tmp_path: Path, below: bool) -> None:
    """The logs of a service lie elsewhere, or below the folder; a new user is only there."""
    shutil.copytree(trained / "popularity", tmp_path / "runs/run")
    folder = tmp_path / ("runs" if below else "elsewhere") / "feedback"
    folder.mkdir(parents=True)
    lines = {
        user: line_of({"user": user, "item": "i", "time": 1.5}) for user in (USER, OTHER, "new")
    }
    for name in ("feedback-1.jsonl", "exposures-1.jsonl"):
        (folder / name).write_bytes(b"".join(lines.values()))
    users = ["--user", USER, "--user", "new"]
    asked = ["forget", tmp_path / "runs", *users, "--json"]
    if not below:
        assert_one_line(mgformer(*asked), "unknown user 'new'")
        asked += ["--feedback", folder]
    done = json.loads(succeed(*asked))
    actions = {Path(change["file"]).name: change["action"] for change in done["files"]}
    assert actions["feedback-1.jsonl"] == actions["exposures-1.jsonl"] == "rewritten"
    for name in ("feedback-1.jsonl", "exposures-1.jsonl"):
        assert (folder / name).read_bytes() == lines[OTHER]
    assert USER.encode() not in everything_in(tmp_path)


def test_a_folder_without_logs_is_refused(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained / "popularity", tmp_path / "run")
    done = mgformer("forget", tmp_path / "run", "--user", USER, "--feedback", tmp_path / "run")
    assert_one_line(done, "no log of feedback here; give the folder of serve --feedback")
    assert USER in load_bundle(tmp_path / "run").users.values


@pytest.mark.parametrize("model", MODELS)
def test_pairs_vectors_and_counts_of_a_user_are_gone(
    trained: Path, tmp_path: Path, model: str
) -> None:
    shutil.copytree(trained / model, tmp_path / "run")
    before = load_bundle(tmp_path / "run")
    (number,) = before.users.encode([USER])
    kept = np.arange(len(before.users)) != number
    done = forget_users(tmp_path / "run", [USER])
    after = load_bundle(tmp_path / "run")
    own = int(np.diff(before.all_pairs.indptr)[number])
    assert done.pairs == own > 0
    assert after.users.values.to_list() == before.users.values.filter(kept).to_list()
    for part in ("train", "valid", "test"):
        old, new = getattr(before, part), getattr(after, part)
        assert (new.matrix != old.matrix[kept]).nnz == 0
        assert (np.diff(new.indptr) == np.diff(old.indptr)[kept]).all()
    assert after.scorer.num_users == len(after.users)
    expected = before.item_degrees - before.train.matrix[[number]].toarray()[0]
    assert (after.item_degrees == expected).all()
    if before.per_user is not None:
        assert after.per_user is not None
        assert after.per_user.equals(before.per_user.filter(pl.col("user") != USER))
    for name, table in before.weights.items():
        assert len(after.weights[name]) in (len(table), len(table) - 1), name
    nodes = len(before.users) + len(before.items)
    for name, table in before.weights.items():
        if len(table) == nodes:
            rest = np.append(kept, np.ones(len(before.items), dtype=bool))
            assert (after.weights[name].numpy() == table.numpy()[rest]).all()


@pytest.mark.parametrize("model", ["ease", "ials", "directau"])
def test_lists_of_others_stay(trained: Path, tmp_path: Path, model: str) -> None:
    """These scores count no pairs, so the lists are the same to the last bit."""
    shutil.copytree(trained / model, tmp_path / "run")
    before = Recommender.load(tmp_path / "run")
    others = before.bundle.users.values.filter(before.bundle.users.values != USER)
    expected = before.recommend(others, 10)
    forget_users(tmp_path / "run", [USER])
    found = Recommender.load(tmp_path / "run").recommend(others, 10)
    assert found.equals(expected)


def test_popularity_in_the_score_is_counted_again(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained / "popularity", tmp_path / "run")
    forget_users(tmp_path / "run", [USER])
    bundle = load_bundle(tmp_path / "run")
    assert (bundle.scorer.items[:, 0].numpy() == bundle.item_degrees).all()


@pytest.mark.parametrize("model", ["ease", "itemknn"])
def test_exports_of_item_weights_are_ours_and_hold_no_users(model: str, tmp_path: Path) -> None:
    ensure_run(build_config({"dataset": "demo", "model": {"name": model}}), tmp_path, keep=True)
    for kind in ("npz", "parquet", "onnx"):
        succeed("export", tmp_path, "--format", kind)
    told = json.loads(succeed("forget", tmp_path, "--user", USER, "--json"))
    actions = {change["file"]: change["action"] for change in told["files"]}
    exported = {Path(file).name for file in actions if file.startswith("export")}
    assert {"items.npz", "item_weights.parquet", "scores.onnx"} <= exported
    assert "not ours" not in actions.values()
    assert USER.encode() not in everything_in(tmp_path)


def test_several_runs_and_figures_alone(tmp_path: Path) -> None:
    """A comparison has runs below its folder, with records and figures per user beside them."""
    for model in ("popularity", "itemknn"):
        described = {"dataset": "demo", "model": {"name": model}, "split": {"kind": "ratio"}}
        config = build_config(described)
        ensure_run(config, tmp_path / model, keep=True)
    listed = tmp_path / "gone.txt"
    listed.write_text(f"{USER}\n\n{OTHER}\n")
    outside = tmp_path / "runs"
    outside.mkdir()
    for model in ("popularity", "itemknn"):
        shutil.move(tmp_path / model, outside / model)
    (outside / "notes.txt").write_text("mine")
    told = json.loads(succeed("forget", outside, "--users", listed, "--json"))
    assert told["users"] == 2
    actions = {change["file"]: change["action"] for change in told["files"]}
    assert actions["notes.txt"] == "not ours"
    assert actions["itemknn/record.json"] == "rewritten"
    assert actions["itemknn/per_user.parquet"] == "rewritten"
    assert USER.encode() not in everything_in(outside)
    assert OTHER.encode() not in everything_in(outside)


def test_wrong_ids_change_nothing(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained / "ease", tmp_path / "run")
    before = everything_in(tmp_path / "run")
    with pytest.raises(UnknownIdError, match="unknown user 'amir-999'"):
        forget_users(tmp_path / "run", [USER, "amir-999"])
    assert_one_line(mgformer("forget", tmp_path / "run"), "give --user ID, or --users FILE")
    assert_one_line(mgformer("forget", tmp_path, "--user", "x" * 9), "unknown user")
    everyone = load_bundle(tmp_path / "run").users.values.to_list()
    (tmp_path / "all.txt").write_text("\n".join(everyone))
    done = mgformer("forget", tmp_path / "run", "--users", tmp_path / "all.txt")
    assert_one_line(done, "these are all users of the recommender")
    assert everything_in(tmp_path / "run") == before


def test_a_run_that_kept_only_its_figures(tmp_path: Path) -> None:
    described = {"dataset": "demo", "model": {"name": "popularity"}, "split": {"kind": "ratio"}}
    ensure_run(build_config(described), tmp_path / "run")
    assert not (tmp_path / "run" / "bundle.json").exists()
    assert USER.encode() in everything_in(tmp_path)
    succeed("forget", tmp_path / "run", "--user", USER)
    assert USER.encode() not in everything_in(tmp_path)
    assert_one_line(mgformer("forget", tmp_path / "none", "--user", USER), "no run here or below")
