"""Progress lines in the guide's format, so that scripts that parse its output keep working."""

from collections.abc import Mapping

_TAG = "snakes3v3/"
_INDENT = " " * 8


def guide_lines(episode: int, metrics: Mapping[str, float]) -> list[str]:
    """Three lines with the means over the games that ended since the last log point; none if no game ended.

    `episode`: games so far, over all boards.
    """
    # The losses are missing until learning starts.
    if f"{_TAG}total_mean" not in metrics or "train/actor_loss" not in metrics:
        return []
    first = f"[Episode {episode:05d}] total_reward: {metrics[f'{_TAG}total_mean']:.2f} "
    first += f"epsilon: {metrics['train/epsilon']:.2f}"
    if f"{_TAG}difficulty" in metrics:
        first += f" [v3.0] difficulty: {metrics[f'{_TAG}difficulty']:.0f}"
    if metrics.get(f"{_TAG}evasion"):
        first += " [v3.1] evasion:ON"
    snakes = [(n, metrics[tag]) for n in range(1, 4) if (tag := f"{_TAG}snake_{n}_mean") in metrics]
    rewards = " ".join(f"snake_{number}: {reward:.2f}" for number, reward in snakes)
    losses = f"a_loss {metrics['train/actor_loss']:.3f} c_loss {metrics['train/critic_loss']:.3f}"
    return [first, _INDENT + rewards, _INDENT + losses]
