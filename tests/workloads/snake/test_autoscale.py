from itertools import product

import pytest

from lockstep.compute.machine import Machine
from lockstep.errors import UserError
from lockstep.workloads.snake.autoscale import autoscale
from lockstep.workloads.snake.workload import Snake

SIZES = ("n_envs", "n_steps", "batch_size", "policy_width", "policy_depth")


def gpu(memory):
    return Machine("NVIDIA Test", memory, physical_cores=16, logical_cores=32)


def cpu(physical, logical):
    return Machine("Test CPU", 0, physical, logical)


def scaled(device, fill=False, explicit=(), **fields):
    config = Snake().preset("base").replace(total_timesteps=50_000_000, auto_scale=True, max_utilization=fill, **fields)
    config, _ = autoscale(config, device, explicit)
    return tuple(config.values()[name] for name in SIZES)


@pytest.mark.parametrize(
    ("memory", "usual", "filled"),
    [
        # 192 x 512 / 4 = 24576 > 4096, and 4096 divides 98304 (24 times); 256 x 1024 / 2 > 8192.
        (180, (192, 512, 4096, 128, 2), (256, 1024, 8192, 128, 3)),
        (80, (192, 512, 4096, 128, 2), (256, 1024, 8192, 128, 3)),
        (79.9, (96, 256, 2048, 32, 2), (128, 256, 4096, 128, 3)),
        (24, (64, 256, 2048, 32, 2), (96, 256, 4096, 64, 3)),
        (16, (48, 256, 2048, 32, 2), (64, 256, 4096, 32, 3)),
        # 24 x 256 / 4 = 1536, which divides 6144.
        (8, (24, 256, 1536, 32, 2), (32, 256, 4096, 32, 3)),
        # 16 x 256 / 4 = 1024; filled 16 x 256 / 2 = 2048.
        (6, (16, 256, 1024, 32, 2), (16, 256, 2048, 32, 3)),
    ],
)
def test_a_gpu_is_looked_up_by_its_memory(memory, usual, filled):
    assert scaled(gpu(memory)) == usual
    assert scaled(gpu(memory), fill=True) == filled


@pytest.mark.parametrize(
    ("physical", "logical", "usual", "filled"),
    [
        (16, 32, (16, 256, 1024, 32, 2), (64, 256, 1024, 32, 2)),
        (64, 256, (16, 256, 1024, 32, 2), (256, 256, 1024, 32, 2)),
        # 12 environments fill 8 lanes once; 8 x 256 / 4 = 512.
        (12, 12, (8, 256, 512, 32, 2), (24, 256, 1024, 32, 2)),
        # 6 become 4 in 4 lanes: 4 x 256 / 4 = 256; filled 12 become 8.
        (6, 6, (4, 256, 256, 32, 2), (8, 256, 512, 32, 2)),
        (1, 1, (1, 256, 64, 32, 2), (2, 256, 128, 32, 2)),
    ],
)
def test_a_cpu_is_looked_up_by_its_cores(physical, logical, usual, filled):
    assert scaled(cpu(physical, logical)) == usual
    assert scaled(cpu(physical, logical), fill=True) == filled


def test_every_change_is_reported_with_its_reason():
    config = Snake().preset("base").replace(n_envs=512, n_steps=64, batch_size=4096, auto_scale=True)
    result, changes = autoscale(config, gpu(40), {"n_steps", "policy_depth"})
    assert [(change.field, change.old, change.new) for change in changes] == [
        ("n_envs", 512, 96),
        ("batch_size", 4096, 1536),
        ("policy_width", 64, 32),
    ]
    assert {change.reason for change in changes} == {"NVIDIA Test with 40 GB (40 GB or more)"}
    assert (result.algorithm.n_steps, result.network.policy_depth) == (64, 3)


def test_the_result_records_its_sizes_and_scaling_again_changes_nothing():
    config = Snake().preset("base").replace(max_utilization=True, max_n_envs=64)
    result, changes = autoscale(config, gpu(80), ())
    assert changes
    chosen = result.workload
    assert (chosen.auto_scale, chosen.max_utilization, chosen.max_n_envs, chosen.max_batch_size) == (False, False, 0, 0)
    assert autoscale(result, gpu(8), ()) == (result, [])


def test_without_auto_scale_nothing_changes():
    assert autoscale(Snake().preset("base"), gpu(80), ()) == (Snake().preset("base"), [])


def test_limits_are_kept():
    assert scaled(gpu(80), max_n_envs=100)[0] == 96
    assert scaled(gpu(80), max_n_envs=5)[0] == 4
    assert scaled(gpu(80), max_batch_size=1000)[2] == 768


def test_a_limit_that_nothing_fits_is_refused():
    with pytest.raises(UserError, match="auto_scale: no n_envs up to 5 fits lanes and batch"):
        scaled(gpu(80), max_n_envs=5, lanes=16)
    with pytest.raises(UserError, match="max_batch_size 4 is less than the smallest batch that fits, 8"):
        scaled(gpu(80), max_batch_size=4)


def test_explicit_sizes_stay_and_the_others_fit_around_them():
    # A batch of 20480 = 5 x 4096 needs n_envs x n_steps to be a multiple of it: with 512 steps a multiple of 40.
    assert scaled(gpu(80), n_envs=40, n_steps=512, batch_size=20480, explicit={"batch_size"})[:3] == (160, 512, 20480)
    # With 40 environments as well, steps must be a multiple of 512.
    explicit = {"batch_size", "n_envs"}
    assert scaled(gpu(80), n_envs=40, n_steps=512, batch_size=20480, explicit=explicit)[:3] == (40, 512, 20480)
    assert scaled(gpu(40), n_envs=40, n_steps=512, batch_size=20480, explicit=explicit)[:3] == (40, 512, 20480)


def test_whatever_is_explicit_the_result_is_valid_and_keeps_it():
    starts = [
        Snake().config(n_envs=4, n_steps=100, batch_size=80, auto_scale=True),
        Snake().config(n_envs=36, lanes=12, n_steps=7, batch_size=84, auto_scale=True),
        Snake().config(n_envs=96, n_steps=30, batch_size=240, grad_accum=3, max_utilization=True),
    ]
    devices = [gpu(80), gpu(30), gpu(2), cpu(6, 12), cpu(1, 1)]
    for config, device, keep in product(starts, devices, product([False, True], repeat=3)):
        explicit = {name for name, kept in zip(SIZES, keep, strict=False) if kept}
        result, changes = autoscale(config, device, explicit)
        assert all(result.values()[name] == config.values()[name] for name in explicit)
        assert {change.field for change in changes}.isdisjoint(explicit)
        ppo = result.algorithm
        assert ppo.rollout_size % ppo.batch_size == 0
        assert ppo.batch_size % (result.effective_lanes * ppo.grad_accum) == 0
