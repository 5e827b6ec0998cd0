"""An environment written in JAX, through DLPack: no copy between JAX and torch on one device.

pip install jax;  lockstep train jax_env:Pendulums --n-envs 1024
"""

import torch


class Pendulums:
    """E pendulums to swing up; the physics is a jitted JAX function."""

    observation_shape = (3,)
    action_dim = 1

    def __init__(self, index: torch.Tensor, seed: int) -> None:
        import jax

        self.jax, self.index = jax, index
        keys = jax.vmap(jax.random.fold_in, (None, 0))(jax.random.key(seed), self._to_jax(index))
        self.keys = keys
        self.step_all, self.start_all = jax.jit(self._physics), jax.jit(self._start)
        self.angle, self.speed = (torch.zeros(len(index), device=index.device) for _ in range(2))
        self.steps, self.episode = torch.zeros_like(index), torch.zeros_like(index)

    def reset(self) -> torch.Tensor:
        """Start every episode; returns the observation (E, 3)."""
        self._begin(torch.ones_like(self.index, dtype=torch.bool))
        return self._seen()

    def step(self, action: torch.Tensor):
        """One step of every pendulum. Returns five tensors."""
        angle, speed, reward = self.step_all(*map(self._to_jax, (self.angle, self.speed, action[:, 0])))
        self.angle, self.speed = self._to_torch(angle), self._to_torch(speed)
        self.steps += 1
        truncated = self.steps >= 200
        final = self._seen()
        self._begin(truncated)
        return self._seen(), self._to_torch(reward), torch.zeros_like(truncated), truncated, final

    def state(self) -> dict[str, torch.Tensor]:
        """Everything that changes, each tensor with E first."""
        return {name: getattr(self, name).clone() for name in ("angle", "speed", "steps", "episode")}

    def load(self, state: dict[str, torch.Tensor]) -> torch.Tensor:
        """Continue from a state."""
        for name, value in state.items():
            setattr(self, name, value.to(self.index.device).clone())
        return self._seen()

    def _physics(self, angle, speed, push):
        jnp = self.jax.numpy
        upright = (angle + jnp.pi) % (2 * jnp.pi) - jnp.pi
        reward = -(upright**2 + 0.1 * speed**2 + 0.004 * push**2)
        speed = jnp.clip(speed + (15.0 * jnp.sin(angle) + 6.0 * push) * 0.05, -8.0, 8.0)
        return angle + speed * 0.05, speed, reward

    def _start(self, keys, episode):
        def one(key, number):
            return self.jax.random.uniform(self.jax.random.fold_in(key, number), (2,), minval=-1.0)

        return self.jax.vmap(one)(keys, episode)

    def _begin(self, where: torch.Tensor) -> None:
        self.episode += where
        drawn = self._to_torch(self.start_all(self.keys, self._to_jax(self.episode)))
        self.angle = torch.where(where, drawn[:, 0] * torch.pi, self.angle)
        self.speed = torch.where(where, drawn[:, 1], self.speed)
        self.steps = torch.where(where, 0, self.steps)

    def _seen(self) -> torch.Tensor:
        return torch.stack((self.angle.cos(), self.angle.sin(), self.speed / 8.0), dim=1)

    def _to_jax(self, value: torch.Tensor):
        return self.jax.dlpack.from_dlpack(value.contiguous())

    def _to_torch(self, value) -> torch.Tensor:
        # A copy: JAX's arrays must not be written to, and ours are.
        return torch.from_dlpack(value).clone()
