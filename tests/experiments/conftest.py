from pathlib import Path

import numpy as np
import pytest


@pytest.fixture(scope="session")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of 120 people of four tastes: each has ten things of fifteen that go together."""
    rng = np.random.default_rng(4)
    rows = [
        f"u{user},i{item}"
        for user in range(120)
        for item in 15 * (user % 4) + rng.choice(15, 10, replace=False)
    ]
    path = tmp_path_factory.mktemp("data") / "tastes.csv"
    path.write_text("user,item\n" + "\n".join(rows) + "\n")
    return path
