"""Freed memory is kept where the C library can be told so."""

import platform
import resource

import pytest
import torch

from mgformer.training.memory import keep_freed_memory


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
