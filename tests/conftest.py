import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import settings

from mgformer.graph.bipartite import Graph

torch.set_num_threads(1)  # threads cost more than they save on small tensors
# A slow or busy machine must not fail a test: examples have no deadline.
settings.register_profile("local", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20)


@pytest.fixture
def random_graph(rng: np.random.Generator) -> Callable[..., Graph]:
    def build(num_users: int, num_items: int, density: float = 0.3, isolated: bool = True) -> Graph:
        """A random graph; with `isolated`, its last user and its second item have no pairs."""
        pairs = rng.random((num_users, num_items)) < density
        if isolated:
            pairs[-1] = False
            pairs[:, min(1, num_items - 1)] = False
        return Graph(sp.csr_array(pairs.astype(np.float32)))

    return build


@pytest.fixture(scope="module")
def driver() -> Iterator[Any]:
    """A browser without a window."""
    webdriver = pytest.importorskip("selenium.webdriver")
    chromium, chromedriver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or chromedriver is None:
        pytest.skip("needs a browser: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    service = webdriver.ChromeService(chromedriver)
    with webdriver.Chrome(options=options, service=service) as chrome:
        yield chrome


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
