import gzip
import hashlib
import io
import json
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from mgformer.data.dataset import load_dataset, open_dataset
from mgformer.data.download import fetch, verify
from mgformer.data.entries import CATALOG, RemoteFile, data_home, entry, is_present
from mgformer.data.options import DataConfig
from mgformer.errors import DataError
from tests.data.file_server import FileServer, file_server

PUBLIC = [name for name in CATALOG if name != "demo"]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MGFORMER_DATA", str(tmp_path))
    return tmp_path


@pytest.fixture
def server() -> Iterator[FileServer]:
    with file_server() as served:
        yield served


@pytest.fixture
def shrink(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that gives an entry other counts and optionally other files."""

    def change(name: str, users: int, items: int, pairs: int, *files: RemoteFile) -> None:
        counts = {"num_users": users, "num_items": items, "num_interactions": pairs}
        small = replace(CATALOG[name], **counts, files=files or CATALOG[name].files)
        monkeypatch.setitem(CATALOG, name, small)

    return change


def write(folder: Path, **texts: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / name.replace("_", ".", 1)).write_bytes(text.encode("latin-1"))
    return folder


@pytest.mark.parametrize("name", PUBLIC)
def test_entries_are_complete(name: str) -> None:
    known = entry(name)
    assert min(known.num_users, known.num_items, known.num_interactions) > 0
    assert all((known.title, known.licence, known.citation))
    assert known.source.startswith("https://")
    assert len(known.files) >= 1
    assert all(file.url.startswith("https://") for file in known.files)
    sums = [file.sha256 for file in known.files] + [
        s for f in known.forms for s in f.files.values()
    ]
    assert all(len(bytes.fromhex(sha256)) == 32 for sha256 in sums if sha256)


@pytest.mark.parametrize("name", PUBLIC)
def test_fetched_files_are_the_files_of_a_form(name: str) -> None:
    got = {to for file in entry(name).files for to in (file.members.values() or [file.name])}
    assert any(set(form.files) == got for form in entry(name).forms)


def test_catalog_names() -> None:
    known = "demo ml-100k ml-1m ml-latest-small gowalla yelp2018 amazon-beauty amazon-book alibaba"
    assert " ".join(CATALOG) == known


def test_unknown_name_gets_a_suggestion() -> None:
    for function in (entry, is_present, fetch, load_dataset, verify):
        with pytest.raises(DataError, match=r"unknown dataset 'gowala'.*did you mean gowalla"):
            function("gowala")


def test_data_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", "/home/ana")
    monkeypatch.delenv("MGFORMER_DATA", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert data_home() == Path("/home/ana/.cache/mgformer")
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert data_home() == Path("/caches/mgformer")
    monkeypatch.setenv("MGFORMER_DATA", "~/data")
    assert data_home() == Path("/home/ana/data")


def test_demo_needs_no_files(home: Path) -> None:
    assert is_present("demo")
    fetch("demo")
    assert list(home.iterdir()) == []
    demo = load_dataset("demo")
    assert demo.name == "demo"
    assert demo.interactions.num_users == entry("demo").num_users


def test_error_of_a_missing_dataset_names_the_fetch_command(home: Path) -> None:
    assert not is_present("ml-1m")
    assert verify("ml-1m") == {}
    with pytest.raises(DataError, match=r"ml-1m.*run: mgformer datasets fetch ml-1m"):
        load_dataset("ml-1m")


def zipped(**members: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name, text in members.items():
            file.writestr(f"ml-100k/{name.replace('_', '.')}", text.encode("latin-1"))
    return buffer.getvalue()


def test_zip_is_fetched_and_read_with_titles(
    home: Path, server: FileServer, shrink: Callable[..., None]
) -> None:
    content = zipped(
        u_data="1\t10\t5\t881250949\n2\t10\t3\t891717742\n2\t7\t1\t878887116\n",
        u_item="7|Misérables, Les (1995)|x|y\n10|Richard III (1995)|x\n99|Unseen|x\n",
        u_user="not wanted",
    )
    server.files["ml-100k.zip"] = content
    [remote] = CATALOG["ml-100k"].files
    sha256 = hashlib.sha256(content).hexdigest()
    shrink("ml-100k", 2, 2, 3, replace(remote, url=server.url("ml-100k.zip"), sha256=sha256))
    assert fetch("ml-100k") == home / "ml-100k"
    assert is_present("ml-100k")
    dataset = load_dataset("ml-100k")
    assert dataset.interactions.items.values.to_list() == [7, 10]
    assert dataset.about_items.names is not None
    assert dataset.about_items.names.to_list() == ["Misérables, Les (1995)", "Richard III (1995)"]
    assert dataset.interactions.times is not None
    fetch("ml-100k")
    assert len(server.requests) == 1


def test_archive_copied_by_hand_is_extracted(home: Path, server: FileServer) -> None:
    folder = write(home / "ml-100k")
    (folder / "ml-100k.zip").write_bytes(zipped(u_data="1\t1\t5\t3\n", u_item="1|A|x\n"))
    fetch("ml-100k")
    assert (folder / "u.data").read_text() == "1\t1\t5\t3\n"
    assert server.requests == []


def test_only_missing_parts_are_fetched(
    home: Path, server: FileServer, shrink: Callable[..., None]
) -> None:
    server.files = {"train.txt": b"0 5 6\n1 5\n", "test.txt": b"0 7\n1 6\n"}
    remote = [RemoteFile(server.url(name)) for name in server.files]
    shrink("gowalla", 2, 3, 5, *remote)
    write(home / "gowalla", train_txt="0 5 6\n1 5\n")
    fetch("gowalla")
    assert server.requests == [("/test.txt", None)]
    dataset = load_dataset("gowalla")
    assert dataset.parts is not None
    assert {part: len(pairs) for part, pairs in dataset.parts.items()} == {"train": 3, "test": 2}


def test_failed_fetch_is_resumed(
    home: Path, server: FileServer, shrink: Callable[..., None]
) -> None:
    server.files["train.txt"] = b"0 5 6\n"
    shrink("gowalla", 1, 3, 3, *(RemoteFile(server.url(n)) for n in ("train.txt", "test.txt")))
    with pytest.raises(DataError, match="404"):
        fetch("gowalla", pauses=())
    assert not is_present("gowalla")
    server.files["test.txt"] = b"0 7\n"
    fetch("gowalla")
    assert is_present("gowalla")


def test_data_home_that_cannot_be_created(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("MGFORMER_DATA", str(tmp_path / "file"))
    with pytest.raises(DataError, match=r"cannot make .*set MGFORMER_DATA"):
        fetch("gowalla")


def test_wrong_counts_are_refused(home: Path, shrink: Callable[..., None]) -> None:
    write(home / "yelp2018", train_txt="0 5 6\n1 5\n", test_txt="0 7\n")
    with pytest.raises(DataError, match=r"got 2 users × 3 items, 4 inter.*expected 31,668 users"):
        load_dataset("yelp2018")
    # Options can change the counts, so they are not checked.
    assert load_dataset("yelp2018", DataConfig(k_core=1)).interactions.num_users == 2


@pytest.mark.parametrize(
    "train",
    ["0 3 4\n1 3\n2 4 5\n", "0 3\n0 4\n1 3\n2 4\n2 5\n"],
    ids=["user and items", "pairs"],
)
def test_alibaba_shape(home: Path, shrink: Callable[..., None], train: str) -> None:
    write(home / "alibaba", train_txt=train, valid_txt="0 5\n", test_txt="1 4\n2 3\n")
    shrink("alibaba", 3, 3, 8)
    dataset = load_dataset("alibaba")
    assert dataset.parts is not None
    sizes = {part: len(pairs) for part, pairs in dataset.parts.items()}
    assert sizes == {"train": 5, "valid": 1, "test": 2}


def test_ml_1m_shape(home: Path, shrink: Callable[..., None]) -> None:
    write(
        home / "ml-1m",
        ratings_dat="1::1193::5::978300760\n1::661::3::978302109\n2::1193::4::978298413\n",
        movies_dat="661::James: the Peach::Animation\n1193::Cité::Drama|War\n",
    )
    shrink("ml-1m", 2, 2, 3)
    dataset = load_dataset("ml-1m")
    assert dataset.about_items.names is not None
    assert dataset.about_items.names.to_list() == ["James: the Peach", "Cité"]
    assert dataset.interactions.times is not None
    assert dataset.interactions.times.max() == 978302109
    assert len(load_dataset("ml-1m", DataConfig(min_rating=4)).interactions) == 2


def test_beauty_reviews_shape(home: Path, shrink: Callable[..., None]) -> None:
    rows = [
        {"reviewerID": user, "asin": item, "helpful": [0, 1], "unixReviewTime": time}
        for user, item, time in [("A1", "B1", 5), ("A2", "B1", 6), ("A1", "0737104473", 7)]
    ]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    folder = write(home / "amazon-beauty")
    (folder / "reviews_Beauty_5.json.gz").write_bytes(gzip.compress(lines.encode()))
    shrink("amazon-beauty", 2, 2, 3)
    table = load_dataset("amazon-beauty").interactions
    assert table.items.values.to_list() == ["0737104473", "B1"]
    assert table.times is not None


def test_open_prefers_the_catalog_to_a_file_of_the_same_name(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write(home / "here", demo="user,item\na,x\nb,x\n")
    monkeypatch.chdir(folder)
    options = DataConfig(format="csv")
    assert open_dataset("demo").interactions.num_users == 800
    assert open_dataset("./demo", options).interactions.num_users == 2
    assert open_dataset(folder / "demo", options).interactions.num_users == 2


@pytest.mark.parametrize("source", ["ml-100", Path("ml-100")])
def test_error_of_open_lists_the_catalog(home: Path, source: str | Path) -> None:
    with pytest.raises(DataError, match=r"no dataset 'ml-100'.*amazon-book.*did you mean ml-100k"):
        open_dataset(source)


@pytest.mark.realdata
@pytest.mark.parametrize("name", ["ml-100k", "amazon-beauty", "gowalla", "yelp2018"])
def test_real_files_have_the_known_checksums_and_counts(name: str) -> None:
    if not is_present(name):
        pytest.skip(f"{name} is not in {data_home()}")
    assert fetch(name) == data_home() / name
    assert set(verify(name).values()) == {True}
    dataset, known = load_dataset(name), entry(name)
    counts = (known.num_users, known.num_items, known.num_interactions)
    table = dataset.interactions
    assert (table.num_users, table.num_items, len(table)) == counts
    assert table.duplicates == 0
    assert (dataset.parts is not None) == (name in ("gowalla", "yelp2018"))
