"""Requests, answers and errors match the OpenAPI document of the service."""

import subprocess
import sys
from pathlib import Path

import pytest

from mgformer.data.dataset import open_dataset
from mgformer.recommend.recommender import Recommender
from tests.serving.running import serving

KEY = "a key"
SHARES = {"a": 0.5, "b": 0.5}
COMMAND = "from schemathesis.cli import schemathesis; schemathesis()"
SETTINGS = """
[checks.negative_data_rejection]
expected-statuses = ["400", "401", "404", "405", "413", "422"]
"""


@pytest.mark.slow
def test_schemathesis_finds_no_undocumented_answer(tmp_path: Path):
    """Run all checks of Schemathesis, with valid and invalid requests.

    It runs in its own process, because it does not work inside the newest pytest.
    """
    pytest.importorskip("schemathesis")
    Recommender.fit("demo", "ials").save(tmp_path / "run")
    (tmp_path / "settings.toml").write_text(SETTINGS)
    folders = {"a": tmp_path / "run", "b": tmp_path / "run"}
    feedback = tmp_path / "feedback"
    with serving(folders, api_key=KEY, shares=SHARES, feedback=feedback) as address:
        done = subprocess.run(
            [
                *(
                    sys.executable,
                    "-c",
                    "from schemathesis.cli import schemathesis; schemathesis()",
                ),
                *("--config-file", tmp_path / "settings.toml"),
                *("run", f"{address}openapi.json", "--header", f"X-API-Key: {KEY}"),
                *("--checks", "all", "--phases", "examples,coverage,fuzzing"),
                *("--max-examples", "8", "--generation-deterministic"),
                *("--suppress-health-check", "all", "--no-color"),
            ],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
    assert done.returncode == 0, done.stdout[-20_000:]
    assert "Tested: 15" in done.stdout
    for phase in ("Examples", "Coverage", "Fuzzing"):
        assert f"✅ {phase}" in done.stdout
    # Everything that was accepted can be read.
    assert open_dataset(feedback).interactions.num_users > 0
