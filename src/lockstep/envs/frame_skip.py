"""A Gymnasium wrapper that repeats actions. Needs no torch."""

from typing import Any

import gymnasium


class FrameSkip(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Repeats every action; rewards add up, and an end ends the repetition."""

    def __init__(self, env: gymnasium.Env[Any, Any], times: int) -> None:
        super().__init__(env)
        self._times = times

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Apply one action several times."""
        total = 0.0
        for _ in range(self._times):
            observation, reward, terminated, truncated, info = self.env.step(action)
            total += float(reward)
            if terminated or truncated:
                break
        return observation, total, terminated, truncated, info
