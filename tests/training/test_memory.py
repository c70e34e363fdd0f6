"""The process keeps freed memory, and the peak is that of the measured work."""

import os
import platform
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from mgformer.training import memory
from mgformer.training.memory import keep_freed_memory, peak_mb, reset_peak


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has mallopt")
def test_large_arrays_made_again_and_again_cost_few_page_faults():
    assert keep_freed_memory()

    def faults_of_rounds(count: int) -> int:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(count):
            torch.zeros(20_000_000).add_(1)  # 20,000 pages, then freed
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    faults_of_rounds(5)
    assert faults_of_rounds(10) < 0.5 * 10 * 20_000


OFFERED = Path("/sys/kernel/mm/transparent_hugepage/enabled")


@pytest.mark.skipif(
    not OFFERED.exists() or "[madvise]" not in OFFERED.read_text(),
    reason="the system does not give large pages to those who ask for them",
)
@pytest.mark.parametrize("asked", [True, False])
def test_large_arrays_get_large_pages_if_they_are_asked_for(asked: bool) -> None:
    script = f"""
import torch
from mgformer.training.memory import use_large_pages
if {asked}:
    use_large_pages()
table = torch.zeros(20_000_000)
print(next(line for line in open("/proc/self/smaps_rollup") if line.startswith("AnonHugePages")))
"""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("THP")}
    command = [sys.executable, "-c", script]
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert (int(said.stdout.split()[1]) > 40_000) == asked


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs the counts of Linux")
def test_a_peak_is_of_what_came_after_the_reset() -> None:
    def peak_of_holding(megabytes: int) -> int:
        assert reset_peak()
        before = peak_mb()
        np.ones(megabytes * 2**17)
        after = peak_mb()
        assert before is not None
        assert after is not None
        return after - before

    keep_freed_memory()  # what the first leaves behind must not count for the second
    large, small = peak_of_holding(400), peak_of_holding(50)
    assert large == pytest.approx(400, abs=20)
    assert small == pytest.approx(50, abs=20)


def test_no_peak_where_the_system_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "PROCESS", tmp_path / "none")
    assert not reset_peak()
    assert peak_mb() is None
