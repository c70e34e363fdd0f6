"""Freed memory is kept where the C library can be told so."""

import platform
import resource

import pytest
import torch

from mgformer.training.memory import keep_freed_memory


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has mallopt")
def test_a_large_array_made_again_costs_no_page_faults():
    assert keep_freed_memory()
    torch.zeros(20_000_000).add_(1)  # 80 MB, then freed
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.zeros(20_000_000).add_(1)
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    assert faults < 2_000  # of the 20,000 pages that it has
