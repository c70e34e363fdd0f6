"""Listing datasets and options must be quick, so it imports no heavy packages."""

import subprocess
import sys

import pytest

HEAVY = ("numpy", "polars", "scipy", "torch")


@pytest.mark.parametrize(
    ("modules", "unwanted"),
    [
        ("mgformer.data.entries", (*HEAVY, "pydantic")),
        ("mgformer.data.download", (*HEAVY, "pydantic")),
        ("mgformer.data.options", HEAVY),
    ],
)
def test_light_modules_import_no_heavy_packages(modules: str, unwanted: tuple[str, ...]) -> None:
    code = f"import sys, {modules}; print(*(set({unwanted!r}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
