import pytest

from lockstep.algorithms.ddpg.settings import DDPGSettings, TeamMLPSettings
from lockstep.config.config import Layout
from lockstep.config.fields import describe_fields
from lockstep.envs.spaces import Discrete
from lockstep.errors import UserError
from lockstep.rl.problem import TeamProblem


def make(**values):
    """A configuration of DDPG alone."""
    return Layout(DDPGSettings, network=TeamMLPSettings).config(values)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"n_envs": 12}, "n_envs 12 must be a multiple of the run's 8 lanes; nearest: 8 or 16"),
        ({"batch_size": 100}, "batch_size 100 must be a multiple of the run's 8 lanes; nearest: 96 or 104"),
        ({"n_envs": 64, "batch_size": 4}, "batch_size 4 must be a multiple of the run's 8 lanes; nearest: 8"),
        ({"update_interval": 5}, "update_interval 5 must divide n_steps 32"),
        (
            {"buffer_size": 500},
            "buffer_size 500 is less than one batch (512); raise --buffer-size to 512",
        ),
        ({"learning_starts": 200_000}, "less than learning_starts (200000)"),
        (
            {"n_envs": 4096, "buffer_size": 10_000},
            "buffer_size 10000 is less than n_step + 1 = 4 steps of 4096 environments (16384)",
        ),
        ({"total_timesteps": 100}, "less than one round's n_envs x n_steps = 64 x 32 = 2048"),
    ],
)
def test_inconsistent_settings_are_refused_in_one_line(fields, message):
    with pytest.raises(UserError) as caught:
        make(**fields)
    assert message in str(caught.value) and len(str(caught.value).splitlines()) == 1


def test_epsilon_falls_with_every_environment_step_to_its_minimum():
    settings = DDPGSettings(epsilon=0.5, epsilon_speed=0.99998, epsilon_min=0.05)
    assert settings.epsilon_after(0) == 0.5
    # A hundred episodes of 200 steps: 0.5 x 0.99998^20000 = 0.335.
    assert settings.epsilon_after(20_000) == pytest.approx(0.335, abs=5e-4)
    assert settings.epsilon_after(1_000_000) == 0.05


def test_learning_starts_when_a_batch_and_n_step_successors_are_stored():
    assert DDPGSettings(n_envs=64, batch_size=512, n_step=3).first_update == 512
    assert DDPGSettings(n_envs=64, batch_size=64, n_step=3).first_update == 256
    assert DDPGSettings(learning_starts=5000).first_update == 5000


def test_the_plan_says_how_often_each_step_is_sampled():
    # 2 updates x 512 samples for each 64 x 4 steps: four times.
    settings = DDPGSettings(n_envs=64, batch_size=512, update_interval=4, updates_per_interval=2)
    rows = dict(settings.work(str))
    assert "each step is learned from 4 times" in rows["batch"]
    assert rows["memory"].startswith("99968 steps")  # 100,000 / 64 = 1562 whole rows


def test_weak_scaling_grows_environments_batch_memory_and_rates():
    settings = make(scaling="weak", lr_scaling="linear").for_world(2).algorithm
    assert (settings.n_envs, settings.batch_size, settings.buffer_size) == (128, 1024, 200_000)
    assert (settings.a_lr, settings.c_lr) == (6e-4, 6e-4)


def test_every_field_has_a_line_of_help():
    group = describe_fields(DDPGSettings)[0]
    assert [item.name for item in group.fields if not item.doc.endswith(".")] == []
    by_name = {item.name: item for item in group.fields}
    for name in ("total_timesteps", "n_envs", "batch_size", "buffer_size", "learning_starts"):
        assert "over all ranks" in by_name[name].doc


def test_the_network_takes_its_shapes_from_the_problem_and_its_structure_from_the_algorithm():
    problem = TeamProblem(name="p", observation_shape=(3, 5), actions=Discrete(4), make_env=None, make_test=None)
    config = make(algo="maddpg", twin_critics=True, hidden_size=16, hidden_layers=1)
    shapes = {name: tuple(value.shape) for name, value in config.network.build(problem, config).state_dict().items()}
    # A central critic sees its own 5 features and of each of the two others 5 features and 4 actions: 5 + 2 x 9 = 23.
    assert (shapes["actor.0.weight"], shapes["actor.2.weight"]) == ((16, 5), (4, 16))
    assert shapes["critic.0.layers.0.weight"] == shapes["critic.1.layers.0.weight"] == (16, 23)


def test_the_mlp_refuses_observations_that_are_neither_vectors_nor_images():
    problem = TeamProblem(name="p", observation_shape=(3, 8, 8), actions=Discrete(4), make_env=None, make_test=None)
    with pytest.raises(UserError, match=r"network mlp: p shows each agent an array \(8, 8\); allowed"):
        make().network.build(problem, make())
