import pytest

from lockstep.config.sources import from_yaml, to_yaml
from lockstep.errors import UserError
from lockstep.workloads.snake.workload import Snake

SNAKE = Snake()
PRESETS = SNAKE.presets

# The structure and keys of the original program's files.
NESTED_FILE = """
environment: {grid_size: 8, max_steps: null, step_penalty: -0.01, death_penalty: -1.0, food_reward: 1.0,
              distance_reward_scale: 0.0, frame_stack: 1}
policy: CnnPolicy
ppo:
  learning_rate: 3e-4
  n_steps: 128
  batch_size: 256
  n_epochs: 4
  gamma: 0.99
  gae_lambda: 0.95
  clip_range: 0.2
  clip_range_vf: null
  normalize_advantage: true
  ent_coef: 0.01
  vf_coef: 0.5
  max_grad_norm: 0.5
  use_sde: false
  sde_sample_freq: -1
  target_kl: null
  policy_kwargs: {normalize_images: false}
training:
  total_timesteps: 200000
  eval_freq: 5000
  save_freq: 25000
notes: A quick run.
"""


def test_there_are_the_presets_of_the_guide_and_debug():
    assert list(PRESETS) == [
        "debug",
        "small",
        "base",
        "large",
        "b200",
        "guide",
        "reward_shaping_distance",
        "frame_stacking",
        "high_entropy",
    ]


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_divides_over_up_to_eight_ranks_and_survives_its_file(name):
    config = SNAKE.preset(name)
    for size in range(1, 9):
        assert config.for_world(size) == config
    assert from_yaml(to_yaml(config), config.layout) == config


def test_debug_is_twenty_small_updates():
    config = SNAKE.preset("debug")
    ppo = config.algorithm
    assert ppo.total_timesteps // ppo.rollout_size == 20
    assert (config.workload.grid_size, ppo.n_envs, ppo.n_steps, ppo.batch_size) == (6, 16, 16, 64)


def test_the_guides_ten_million_steps_are_enough_updates_to_learn_from():
    ppo = SNAKE.preset("guide").algorithm
    assert (ppo.total_timesteps, ppo.n_envs, ppo.total_timesteps // ppo.rollout_size) == (10_000_000, 256, 610)


@pytest.mark.parametrize(
    ("name", "difference"),
    [
        ("reward_shaping_distance", {"distance_reward_scale": 0.01}),
        ("frame_stacking", {"frame_stack": 4}),
        ("high_entropy", {"ent_coef": 0.05}),
    ],
)
def test_an_ablation_differs_from_base_in_one_field(name, difference):
    changed = SNAKE.preset(name).differences(SNAKE.preset("base"))
    assert {key: new for key, (_, new) in changed.items()} == difference


def test_a_nested_file_is_understood_as_it_is(tmp_path):
    path = tmp_path / "small.yaml"
    path.write_text(NESTED_FILE)
    resolved = SNAKE.resolve("base", path, ["--n-envs", "8", "--total-timesteps", "10000"])
    config = resolved.config
    ppo, run = config.algorithm, config.run
    assert (config.workload.grid_size, ppo.n_envs, ppo.n_steps, ppo.batch_size) == (8, 8, 128, 256)
    assert (ppo.total_timesteps, run.eval_every, run.checkpoint_every) == (10_000, 5_000, 25_000)
    assert "use_sde" not in resolved.explicit
    path.write_text(NESTED_FILE.replace("use_sde: false", "use_sde: true"))
    with pytest.raises(UserError, match=r"use_sde true \(.*small.yaml:18\): cannot be chosen here; allowed: false"):
        SNAKE.resolve("base", path)


def test_the_guides_command_lines_are_understood():
    full = "--n-envs 256 --n-steps 1024 --batch-size 8192 --policy-width 128 --policy-depth 3 --precision amp"
    words = [*full.split(), "--max-utilization", "--total-timesteps", "100000000"]
    config = SNAKE.resolve("large", overrides=words).config
    assert (config.algorithm.rollout_size, config.run.precision, config.run.autotune) == (
        262_144,
        "bf16",
        True,
    )
    less = "--n-envs 192 --batch-size 4096 --n-steps 512 --auto-scale true --device cuda --run-name smoke_multi_gpu"
    assert SNAKE.resolve("base", overrides=less.split()).config.run.autotune is True


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("n_envs=7", "n_envs 7 must be a multiple of the run's 8 lanes"),
        ("grid_size=3", "grid_size 3 .*allowed: a whole number from 4 to 128"),
        ("policy_width=8", "policy_width 8 .*allowed: a whole number from 16 to 512"),
        ("policy_depth=5", "policy_depth 5 .*allowed: a whole number from 1 to 4"),
        ("policy_arch=mlp", "policy_arch mlp .*allowed: one of tiny, scalable, deep"),
        ("max_steps=0", "max_steps 0 .*or none"),
        ("max_n_envs=64", "max_n_envs 64 .*allowed: 0; --autotune keeps what is given"),
    ],
)
def test_invalid_settings_are_refused(word, message):
    with pytest.raises(UserError, match=message):
        SNAKE.resolve("small", overrides=[word])


def test_the_step_limit_defaults_to_two_hundred_steps_a_row():
    assert SNAKE.config(grid_size=12).workload.step_limit == 2400
    assert SNAKE.config(max_steps=30).workload.step_limit == 30


def test_every_field_has_a_line_of_help():
    groups = SNAKE.layout().schema.described()
    titles = [group.title.split(":")[0].rstrip(".") for group in groups]
    assert titles == ["Convolutions over the board", "Snake", "PPO", "How to run"]
    assert [item.name for group in groups for item in group.fields if not item.doc.endswith(".")] == []
