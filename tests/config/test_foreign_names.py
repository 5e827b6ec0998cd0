"""Flags and keys of the guides and their programs: each is a setting, or is answered in one line, in every workload."""

import pytest

from lockstep.cli.main import main
from lockstep.config.foreign_names import FOREIGN_NAMES
from lockstep.config.sources import UnknownSetting
from lockstep.errors import UserError
from lockstep.workloads import registry

# Every flag of the guides' commands and of the programs that they start, and every key of those programs' files.
SNAKE = """
    config device total-timesteps n-envs run-name seed policy-width policy-depth precision max-utilization resume-from
    model n-episodes fps batch-size n-steps logdir host port standalone nproc-per-node run-suffix auto-scale max-n-envs
    max-batch-size policy-arch compile pin-memory env-processes normalize-images frame-stack eval-freq eval-episodes
    save-freq max-hours learning-rate grid-size folder checkpoint output deterministic stochastic video record runs
    names interval compact expert ppo-model steps max-episodes save-dir shard-size num-workers max_steps step_penalty
    death_penalty food_reward distance_reward_scale policy n_epochs gamma gae_lambda clip_range clip_range_vf
    normalize_advantage ent_coef vf_coef max_grad_norm use_sde sde_sample_freq target_kl n_envs_per_gpu
"""
SNAKES = """
    max_episodes batch_size epsilon epsilon_speed a_lr c_lr gamma tau save_interval opponent_difficulty_strategy
    enable_opponent_evasion opponent_evasion_start_episode load_model_run load_model_run_episode buffer_size
    game_name algo episode_length output_activation model_episode log_dir update_interval local_rank my_ai opponent
    episode nproc_per_node
"""
TRADING = """
    episodes distributed num-gpus learning-rate-actor learning-rate-critic update-interval checkpoint-interval resume
    master-port checkpoint-dir symbols start-date end-date no-data-load no-auto-resume fix-zero-trading
    closing-incentives fix-rewards entropy-coef portfolio-bonus use-qlib
"""
CONTROL = """
    task model_size world_size sync_freq steps eval_freq batch_size config-name master_addr master_port enable_wandb
    wandb_project wandb_entity buffer_size horizon save_video data_dir checkpoint obs episodic reward_coef value_coef
    termination_coef consistency_coef rho lr enc_lr_scale grad_clip_norm discount_denom discount_min discount_max
    exp_name mpc iterations num_samples num_elites num_pi_trajs min_std max_std temperature log_std_min log_std_max
    num_bins vmin vmax num_enc_layers enc_dim num_channels mlp_dim latent_dim task_dim num_q dropout simnorm_dim
    wandb_silent save_csv save_agent work_dir multitask tasks obs_shape action_dim obs_shapes action_dims
    episode_lengths seed_steps bin_size task_title defaults
"""
CRICKET = """
    epochs batch-size nnodes node_rank data-dir processed-dir hidden-dim num-layers num-heads dropout lr weight-decay
    patience test-only no-class-weights model-class ollama-workers min-epochs huber-delta wandb wandb-run-name
    force-cpu amp min_history data-fraction backend
"""
NAMES = sorted({name for names in (SNAKE, SNAKES, TRADING, CONTROL, CRICKET) for name in names.split()})


@pytest.mark.parametrize("name", registry.names())
def test_every_name_of_every_guide_is_known_or_answered(name):
    workload = registry.load(name)
    unanswered = []
    for key in NAMES:
        try:
            workload.resolve("debug", overrides=[f"--{key}", "1"])
        except UnknownSetting as error:
            # A setting of another guide's workload is answered with that workload's name.
            unanswered += [] if registry.with_setting(error.key) else [key]
        except UserError as error:
            assert len(str(error).splitlines()) == 1
    assert unanswered == []


def test_a_foreign_name_is_a_setting_only_where_the_word_means_something_else():
    owners = {key: registry.with_setting(key) for key in FOREIGN_NAMES}
    # `model` is a network there, a file of weights in the guides; only `fit` loads data in processes of its own.
    assert {key: found for key, found in owners.items() if found} == {
        "model": ["cricket", "fit"],
        "num_workers": ["fit"],
    }


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("train snake --resume", "continue a run with `lockstep resume RUN`"),
        ("train trading --no-auto-resume", "choose another, or none, to begin anew"),
        ("plan snakes3v3 --load_model_run 1", "--load-model runs/NAME"),
        ("plan cricket --num-workers 4", "not needed: no worker processes"),
        ("plan trading --checkpoint-dir checkpoints", "--runs-dir, under its --run-name"),
        ("plan snake --nproc_per_node=4", "--gpus N or --ranks N"),
        ("train snake --resume-from step-64", "or --from step-..."),
        ("plan trading --policy-width 64", "not a setting here; the one for it is hidden_size; --help lists all"),
        ("plan snake --episodes 1000", "the one for it is total_timesteps"),
        ("plan snake --epochs 10", "the one for it is total_timesteps"),
        ("plan trading --steps 1000", "the one for it is total_timesteps or episodes"),
        ("plan snakes3v3 --lr 1e-3", "the one for it is a_lr or c_lr"),
        ("plan snake --checkpoint-interval 9", "the one for it is checkpoint_every"),
        ("plan snake --no-class-weights", "not a setting here, but one of cricket"),
        ("plan snake --num-heads 4", "not a setting here, but one of cricket"),
        ("plan snakes3v3 --grid-size 8", "not a setting here, but one of snake"),
        ("eval --model runs/x/best_model.zip --n-episodes 100", "the first argument must be a run, not --model"),
    ],
)
def test_a_foreign_flag_is_answered_in_one_line(line, answer, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(line.split()) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and answer in told


def test_a_list_may_be_given_as_words():
    words = ["--symbols", "SPY", "QQQ", "IWM", "--no-data-load"]
    assert registry.load("trading").resolve("debug", overrides=words).config.workload.symbols == ""
    with pytest.raises(UserError, match="symbols 'SPY,QQQ,IWM' selects from data, but there is none"):
        registry.load("trading").resolve("debug", overrides=words[:4])


# The head and the tail of the official program's configuration.
OFFICIAL = """
defaults:
    - override hydra/launcher: submitit_local
    - _self_
task: dog-run
checkpoint: ???
steps: 10_000_000
data_dir: ???
obs_shape: ???
hydra:
    run: {dir: logs}
"""


def test_the_official_configuration_of_tdmpc2_is_read(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(OFFICIAL)
    resolved = registry.load("control").resolve("guide", path)
    assert resolved.explicit == {"task", "steps"}
    assert (resolved.config.workload.task, resolved.config.length) == ("dog-run", 10_000_000)


@pytest.mark.parametrize(
    "entry",
    ["base_config", "model: large", "override hydra/launcher: [_self_]", "override hydra/x: {a: 1}", "{a: b, c: d}"],
)
def test_files_are_not_composed(tmp_path, entry):
    path = tmp_path / "config.yaml"
    path.write_text(f"defaults:\n  - {entry}\ntask: dog-run\n")
    with pytest.raises(UserError, match=r"config.yaml:2: defaults names other files: .*into one file"):
        registry.load("control").resolve("guide", path)
