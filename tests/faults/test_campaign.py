"""The long campaign: fifty random kills of every workload there is."""

import subprocess
import sys
from pathlib import Path

import pytest

from lockstep.workloads import registry

CAMPAIGN = Path(__file__).parents[2] / "benchmarks" / "fault_campaign.py"


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("workload", registry.names())
def test_fifty_kills_of_any_workload_end_in_the_undisturbed_hash(workload):
    words = [sys.executable, str(CAMPAIGN), "kills", "--workload", workload, "--kills", "50", "--ranks", "4"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
