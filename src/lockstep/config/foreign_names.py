"""Flags and keys of other programs that are no settings here, each with what to use instead or why it is not needed.

They come from the guides that the workloads grew out of and from those guides' programs, from torchrun, Hydra and
Stable-Baselines3. One table serves every workload: who knows a flag from one guide tries it on the others, too. A
workload's own `foreign_keys` come first, and `only_values` lists what it accepts with one value.
"""

from collections.abc import Collection, Mapping

_NUMBER_OF_RANKS = "set the number of ranks on the command line with --gpus N or --ranks N"
_ALL_GPUS = "not needed: all visible GPUs are used; fewer, or ranks on a CPU, with --gpus N or --ranks N"
_OWN_LAUNCHER = "not needed: ranks are started and numbered by `lockstep train`, or by torchrun before `-m lockstep`"
_ONE_MACHINE = "not needed on one machine; for several, use --nnodes N --rdzv-endpoint HOST:PORT"
_RUN_FOLDER = "a run is kept in the folder --runs-dir, under its --run-name"
_CONTINUE = "continue a run with `lockstep resume RUN`, from its newest checkpoint that verifies, or --from step-..."
_WARM_START = "name the run or the file itself: --load-model runs/NAME"
_OF_EVAL = "it belongs to the evaluation: `lockstep eval RUN --episodes N`"
_OF_PLAY = "it belongs to watching a run: `lockstep play RUN --video FILE`, --fps, --stochastic"
_DERIVED = "it follows from the task and the other settings; leave it out"
_ON_DEVICE = "not needed: no worker processes load data; leave it out"
_REWARD_PATCH = "not needed: the reward is the change of the account after costs; leave it out"
_BOARD = "start TensorBoard yourself: `tensorboard --logdir runs`"
_DEMONSTRATIONS = "episodes are recorded with `lockstep record`, demonstrations are not trained on here"

FOREIGN_NAMES: Mapping[str, str] = {
    # On which devices, and how processes find each other
    "num_gpus": _NUMBER_OF_RANKS,
    "nproc_per_node": _NUMBER_OF_RANKS,
    "world_size": _NUMBER_OF_RANKS,
    "distributed": _ALL_GPUS,
    "standalone": _OWN_LAUNCHER,
    "local_rank": _OWN_LAUNCHER,
    "node_rank": _OWN_LAUNCHER,
    "master_addr": _ONE_MACHINE,
    "master_port": _ONE_MACHINE,
    "backend": "not needed: NCCL where every rank has a GPU of its own, else gloo",
    "force_cpu": "use --device cpu",
    "amp": "use --precision bf16, the default on a GPU that has it, or fp16",
    "n_envs_per_gpu": "sizes are over all ranks: --n-envs N; per rank with --scaling weak",
    "max_n_envs": "--autotune keeps what is given: --n-envs N",
    "max_batch_size": "--autotune does not change the batch: --batch-size N",
    "env_processes": _ON_DEVICE,
    "num_workers": _ON_DEVICE,
    "pin_memory": _ON_DEVICE,
    # Where a run starts, and where it is kept
    "config_name": "name the file with its path: --config FILE.yaml",
    "defaults": "files are not composed; put the settings into one file, and a preset's name on the command line",
    "resume": _CONTINUE,
    "resume_from": _CONTINUE,
    "auto_resume": "`train` with the --run-name of a run that stopped continues it",
    "no_auto_resume": "a run is continued only under its own --run-name; choose another, or none, to begin anew",
    "load_model_run": _WARM_START,
    "load_model_run_episode": f"{_WARM_START}/checkpoints/step-...",
    "model_episode": f"{_WARM_START}/checkpoints/step-...",
    "checkpoint_dir": _RUN_FOLDER,
    "log_dir": _RUN_FOLDER,
    "save_dir": _RUN_FOLDER,
    "work_dir": _RUN_FOLDER,
    "folder": _RUN_FOLDER,
    "run_suffix": "name a run with --run-name NAME",
    "exp_name": "name a run with --run-name NAME",
    "wandb_run_name": "a run has one name, in W&B too: --run-name NAME",
    "wandb_silent": "silence W&B with its own variable, WANDB_SILENT=true",
    "save_csv": "a run writes its evaluations to metrics.jsonl",
    "save_agent": "a run always keeps its weights: `final`, and `best` if it is evaluated",
    # Verbs of their own
    "model": "the model is the first argument: `lockstep eval RUN`, or the path of a file of weights",
    "ppo_model": "the model is the first argument: `lockstep record RUN`",
    "n_episodes": _OF_EVAL,
    "episode": _OF_EVAL,
    "my_ai": "the players are told to the evaluation: `lockstep eval RUN --against NAME`",
    "test_only": "measure a trained run with `lockstep eval RUN`, on test data with --part test",
    "output": "it belongs to the evaluation: `lockstep eval RUN --output FILE`",
    "save_video": "record a finished run with `lockstep play RUN --video FILE`",
    "video": _OF_PLAY,
    "record": _OF_PLAY,
    "fps": _OF_PLAY,
    "stochastic": _OF_PLAY,
    "expert": _DEMONSTRATIONS,
    "shard_size": _DEMONSTRATIONS,
    "runs": "compare runs with `lockstep runs`, or in TensorBoard: `tensorboard --logdir runs`",
    "names": "compare runs with `lockstep runs`, or in TensorBoard: `tensorboard --logdir runs`",
    "interval": "a run logs its devices by itself: system/gpu0_util_percent in TensorBoard",
    "compact": "a run logs its devices by itself: system/gpu0_util_percent in TensorBoard",
    "host": _BOARD,
    "port": _BOARD,
    # What is learned, and by what
    "policy": "a network is chosen with --network NAME; `lockstep list` shows them",
    "use_sde": "not supported: actions are drawn anew at every step",
    "sde_sample_freq": "not supported: actions are drawn anew at every step",
    "normalize_images": "not needed: an environment here gives values from 0 to 1",
    **dict.fromkeys(("multitask", "tasks", "task_title", "bin_size"), _DERIVED),
    **dict.fromkeys(("obs_shape", "obs_shapes", "action_dim", "action_dims", "episode_lengths"), _DERIVED),
    **dict.fromkeys(("fix_zero_trading", "closing_incentives", "fix_rewards", "portfolio_bonus"), _REWARD_PATCH),
    "use_qlib": "bars come from a file: --data FILE of `lockstep train trading`",
    "huber_delta": "a loss that classes do not have; cricket's losses are --loss cross_entropy or focal",
    "min_history": "every ball with at least one before it is a sample; leave it out",
    "data_fraction": "put fewer matches into the folder of --data; --matches N simulates fewer",
    "ollama_workers": "not needed: no language model is asked; roles are inferred from the matches",
}

# Names of one thing in different workloads and guides. Their units may differ, so one is not read as the other.
_SAME_THING = (
    ("total_timesteps", "steps", "epochs", "episodes", "max_episodes"),
    ("episode_length", "max_episode_steps", "max_steps"),
    ("checkpoint_every", "checkpoint_interval", "save_interval"),
    ("learning_rate", "lr", "learning_rate_actor", "learning_rate_critic", "a_lr", "c_lr"),
    ("max_grad_norm", "grad_clip_norm"),
    ("ent_coef", "entropy_coef"),
    ("vf_coef", "value_coef"),
    ("hidden_size", "hidden_dim", "policy_width", "mlp_width", "mlp_dim"),
    ("num_layers", "policy_depth", "mlp_layers", "hidden_layers"),
)


def same_thing(key: str, known: Collection[str]) -> list[str]:
    """The known names for what a key of another workload means; by likeness alone `steps` would be `n_steps`."""
    return [name for names in _SAME_THING if key in names for name in names if name in known]
