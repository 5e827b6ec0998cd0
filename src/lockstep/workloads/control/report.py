"""Per-task results of an evaluation. Nothing here needs torch."""

from collections.abc import Sequence
from statistics import fmean, pstdev
from typing import Any


def per_task(tasks: Sequence[str], results: dict[str, Any]) -> dict[str, Any]:
    """Entries to add to an evaluation's results: `tasks`, and the normalised score if there are several tasks.

    A DeepMind Control task scores a tenth of its return, a Meta-World task its success rate in percent, so both range
    from 0 to 100. The normalised score is the mean over tasks, each weighted equally whatever its number of episodes.
    """
    if len(tasks) == 1 and "episode_control_success" not in results:
        return {}
    # Without the column all episodes belong to the only task.
    numbers = results.get("episode_control_task") or [0.0] * len(results["episode_returns"])
    found = {}
    for number in sorted({int(number) for number in numbers}):
        chosen = [i for i, other in enumerate(numbers) if other == number]
        found[tasks[number]] = _summary(results, chosen)
    if len(tasks) == 1:
        return {"tasks": found}
    return {"tasks": found, "normalised_score": fmean(task["score"] for task in found.values())}


def _summary(results: dict[str, Any], chosen: list[int]) -> dict[str, float]:
    def column(name: str) -> list[float]:
        return [results[name][i] for i in chosen]

    returns = column("episode_returns")
    row = {"episodes": len(chosen), "return": fmean(returns), "deviation": pstdev(returns)}
    reported = [name for name in ("success", "score") if f"episode_control_{name}" in results]
    return row | {name: fmean(column(f"episode_control_{name}")) for name in reported}
