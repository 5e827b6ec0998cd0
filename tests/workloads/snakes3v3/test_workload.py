"""Settings of 3v3 Snakes under the guide's names and ours, initial weights, and one-line errors."""

from typing import get_args

import pytest
import torch

from lockstep.cli.main import main
from lockstep.config.sources import to_yaml
from lockstep.distributed.world import World
from lockstep.errors import UserError
from lockstep.workloads.snakes3v3.observations.observe import SIZES
from lockstep.workloads.snakes3v3.opponents.scripted import OPPONENTS, SCHEDULES
from lockstep.workloads.snakes3v3.settings import ObservationKind
from lockstep.workloads.snakes3v3.training.rewards import REWARDS
from lockstep.workloads.snakes3v3.workload import Snakes3v3

SNAKES = Snakes3v3()


def debug(**changes):
    return SNAKES.preset("debug").replace(**changes)


def guide(arguments):
    """The guide's preset with these command-line arguments."""
    return SNAKES.resolve("guide", overrides=arguments.split()).config


def make(**changes):
    config = debug(**changes)
    return SNAKES.build(config, World().with_lanes(config.effective_lanes, config.sync_on("cpu")))


@pytest.mark.parametrize("name", SNAKES.presets)
def test_every_preset_splits_over_up_to_eight_ranks_and_is_read_back_from_yaml(name):
    config = SNAKES.preset(name)
    for size in range(1, 9):
        assert config.for_world(size) == config
    assert SNAKES.read_config(to_yaml(config)) == config


def test_the_choices_of_settings_are_those_that_the_game_implements():
    settings = SNAKES.layout().schema.settings
    assert set(settings["observation"].choices) == set(SIZES) == set(get_args(ObservationKind))
    assert set(settings["reward"].choices) == set(REWARDS)
    assert set(settings["opponent"].choices) == {*OPPONENTS, "schedule"}
    assert set(settings["eval_opponent"].choices) == set(OPPONENTS) == set(SNAKES.baselines)
    assert set(settings["opponent_difficulty_strategy"].choices) == set(SCHEDULES)


def test_the_guides_command_lines_work():
    full = "--max_episodes 100000 --batch_size 128 --epsilon 0.5 --opponent_difficulty_strategy curriculum"
    config = guide(f"{full} --save_interval 1000")
    assert (config.algorithm.total_timesteps, config.run.checkpoint_every) == (100_000 * 200, 1000 * 200)
    assert (config.workload.episodes(config.length), config.algorithm.batch_size) == (100_000, 128)
    evading = guide("--max_episodes 100000 --enable_opponent_evasion --opponent_evasion_start_episode 40000")
    assert evading.workload.enable_opponent_evasion
    every = (
        "--game_name snakes_3v3 --algo bicnet --episode_length 200 --output_activation tanh --buffer_size 50000 "
        "--tau 0.01 --gamma 0.99 --seed 1 --a_lr 0.0003 --c_lr 0.0003 --epsilon_speed 0.9995 --update_interval 1 "
        "--model_episode 0"
    )
    assert guide(every).algorithm.algo == "bicnet"


def test_settings_in_games_are_converted_to_steps_and_read_back_from_yaml():
    config = debug(max_episodes=100, save_interval=10)
    assert (config.algorithm.total_timesteps, config.run.checkpoint_every) == (4000, 400)
    assert config.workload.episodes(config.length) == 100
    assert SNAKES.read_config(to_yaml(config)) == config


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("opponent=gredy", "opponent gredy .*allowed: one of schedule, random, .*greedy"),
        ("opponent_difficulty_strategy=steep", "allowed: one of curriculum, linear, exponential, measured"),
        ("enable_opponent_evasion=true", "opponent_evasion_start_episode 40000 lies beyond the run's 64 games"),
        ("buffer_size=24", "buffer_size 24 is less than one batch"),
        ("self_play=2", "a lane's 2 boards do not split evenly among 3 opponents .* multiple of lanes x 3 = 24"),
        ("observation=rich27", "observation rich27 .*allowed: one of rich, jidi26, guide30, final35"),
        ("n_envs=12", "n_envs 12 must be a multiple of the run's 8 lanes"),
        ("max_episodes=1", "total_timesteps 40 is less than one round's"),
    ],
)
def test_wrong_settings_are_refused_in_one_line(setting, message):
    with pytest.raises(UserError, match=message) as caught:
        SNAKES.resolve("debug", overrides=[setting])
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--opponent gredy", "opponent gredy"),
        ("--eval-opponent level9", "eval_opponent level9"),
        ("--opponent-difficulty-strategy steep", "opponent_difficulty_strategy steep"),
        (
            "--max-episodes 100 --enable-opponent-evasion --opponent-evasion-start-episode 100",
            "opponent_evasion_start_episode 100 lies beyond",
        ),
        ("--buffer-size 31", "buffer_size 31 is less than one batch (32); raise --buffer-size to 32"),
        ("--load-model nowhere", "load_model nowhere: no such run, checkpoint or file"),
        ("--algo td3", "algo td3"),
        ("--model-episode 5", "model-episode 5"),
    ],
)
def test_a_wrong_argument_ends_the_command_before_anything_starts(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "snakes3v3", "--preset", "debug", *arguments.split()]) == 2
    output = capsys.readouterr()
    assert output.out == "" and output.err.count("\n") == 1
    assert message in output.err.replace("'", "")
    assert not any(tmp_path.iterdir())


def test_every_field_has_a_line_of_help():
    groups = SNAKES.layout().schema.described()
    titles = [group.title.split(":")[0] for group in groups]
    assert titles == ["The network", "3v3 Snakes", "DDPG", "How to run"]
    assert [item.name for group in groups for item in group.fields if not item.doc.endswith(".")] == []


def test_a_warm_start_takes_over_weights_targets_and_the_pool_of_opponents():
    learner, old = make(), make(seed=7)
    learner.begin_with(old.model.state_dict())
    assert all(torch.equal(a, b) for a, b in zip(learner.model.parameters(), old.model.parameters(), strict=True))
    past = next(learner._problem.opponent_pool.networks[0].parameters())
    assert torch.equal(past, next(old.model.actor.parameters()))
    assert learner.steps == learner.updates == 0


@pytest.mark.parametrize("critic", ["actions", "vectors"])
@pytest.mark.parametrize("algo", ["ddpg", "bicnet", "maddpg"])
@pytest.mark.parametrize("game", ["snakes_3v3", "snakes_5p"])
def test_every_algorithm_trains_for_a_round_of_either_game(algo, critic, game):
    learner = make(algo=algo, critic=critic, game_name=game, observation="jidi26", eval_episodes=2)
    report = learner.step()[0]
    assert report["train/gradient_updates"].mean == 2
    assert {"train/actor_loss", "train/critic_loss", "train/epsilon", "snakes3v3/difficulty"} <= set(report)
    evaluation = learner.evaluate(2, seed=1)
    assert {"snakes3v3_score", "snakes3v3_rival_score", "snakes3v3_won", "snakes3v3_lost"} == set(evaluation.extra)


def test_the_reward_of_each_snake_and_the_total_are_reported_for_finished_games():
    learner = make(n_steps=40, observation="jidi26")
    report = learner.step()[0]
    snakes = [report[f"snakes3v3/snake_{number}_mean"] for number in (1, 2, 3)]
    assert [one.count for one in snakes] == [16, 16, 16]
    assert sum(one.sum for one in snakes) == pytest.approx(report["snakes3v3/total_mean"].sum)
    assert report["rollout/return_mean"].sum == pytest.approx(report["snakes3v3/total_mean"].sum)


def test_the_base_preset_plays_against_greedy_and_itself():
    settings = SNAKES.preset("base").workload
    assert (settings.opponent, settings.eval_opponent) == ("greedy", "greedy")
    assert settings.self_play > 0
