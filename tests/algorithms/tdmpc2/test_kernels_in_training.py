"""Training with the GPU kernels, run here by Triton's interpreter, gives the weights of training without them."""

import os
import subprocess
import sys

import pytest
import torch

from lockstep.algorithms.tdmpc2 import noise
from lockstep.compute import random
from lockstep.compute.ops import fused_norm

CHOICES = [{}, {"ends": True}, {"tasks": 2, "task_dim": 4}, {"sync_freq": 2}]


@pytest.mark.slow
def test_training_with_kernels_equals_eager_training(make_learner, monkeypatch):
    pytest.importorskip("triton", reason="the kernels are written in Triton")
    if os.environ.get("TRITON_INTERPRET") != "1":
        # Triton decides between compiler and interpreter when it is imported.
        command = [sys.executable, "-m", "pytest", "-m", "slow", __file__]
        environment = os.environ | {"TRITON_INTERPRET": "1"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-2000:]
        return
    for choices in CHOICES:
        weights = []
        for fit in (False, True):
            for used_by in (noise, random, fused_norm):
                monkeypatch.setattr(used_by, "kernels_usable", lambda device, fit=fit: fit)
            learner = make_learner(n_steps=4, seed_steps=32, **choices)
            for _ in range(3):
                learner.step()
            assert learner.gradient_updates >= 10
            weights.append(learner.model.state_dict())
        for name, value in weights[0].items():
            torch.testing.assert_close(weights[1][name], value, rtol=0, atol=1e-6)
