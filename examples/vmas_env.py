"""VMAS (vectorised multi-agent simulation) as a tensor environment, with all agents controlled by one policy.

pip install vmas;  lockstep train vmas_env:Balance --n-envs 1024
"""

import torch

from lockstep.compute import random


class Vmas:
    """E scenarios of VMAS, each seeded by its own number."""

    scenario, max_steps = "balance", 100

    def __init__(self, index: torch.Tensor, seed: int) -> None:
        from vmas import make_env

        self.index, self.seed = index, seed
        self.env = make_env(self.scenario, num_envs=len(index), device=index.device, continuous_actions=True, seed=0)
        self.agents = self.env.world.agents
        # Some scenarios first keep a tensor when they are stepped, and a state has to name all of them from the start.
        self.env.step([torch.zeros(len(index), agent.action_size, device=index.device) for agent in self.agents])
        self.env.reset()
        self.action_dim = sum(agent.action_size for agent in self.agents)
        self.steps, self.episode = torch.zeros_like(index), torch.zeros_like(index)
        self.observation_shape = (self._seen().shape[1],)

    def reset(self) -> torch.Tensor:
        """Start every episode; returns all agents' observations, one after the other."""
        self._begin(torch.ones_like(self.index, dtype=torch.bool))
        return self._seen()

    def step(self, action: torch.Tensor):
        """One step of all agents; the team's reward is the mean of theirs."""
        parts = action.split([agent.action_size for agent in self.agents], dim=1)
        limits = [agent.action.u_range_tensor.to(action.device) for agent in self.agents]
        _, rewards, done, _ = self.env.step([part * limit for part, limit in zip(parts, limits, strict=True)])
        self.steps += 1
        truncated = (self.steps >= self.max_steps) & ~done
        final = self._seen()
        self._begin(done | truncated)
        return self._seen(), torch.stack(rewards).mean(0), done, truncated, final

    def state(self) -> dict[str, torch.Tensor]:
        """Everything that changes: of the world, of its entities, and what the scenario remembers."""
        return {name: getattr(owner, key).clone() for name, owner, key in self._changing()}

    def load(self, state: dict[str, torch.Tensor]) -> torch.Tensor:
        """Continue from a state."""
        for name, owner, key in self._changing():
            setattr(owner, key, state[name].clone())
        return self._seen()

    def _changing(self):
        """Every tensor with a row for each environment, with the object that it belongs to."""
        owners = {"": self, "env": self.env, "scenario": self.env.scenario}
        for number, entity in enumerate(self.env.world.entities):
            owners |= {f"entity{number}": entity, f"entity{number}.state": entity.state}
        for label, owner in owners.items():
            for key, value in sorted(vars(owner).items()):
                if isinstance(value, torch.Tensor) and value.shape[:1] == self.index.shape and key != "index":
                    yield f"{label}.{key}", owner, key

    def _begin(self, where: torch.Tensor) -> None:
        self.episode += where
        self.steps.masked_fill_(where, 0)
        for number in where.nonzero().flatten().tolist():
            # VMAS has one generator for all environments: seeded anew by this one's number and episode.
            drawn = random.random_words(self.seed, "vmas", self.index[number], self.episode[number])[0]
            self.env.seed(int(drawn))
            self.env.reset_at(number)

    def _seen(self) -> torch.Tensor:
        scenario = self.env.scenario
        return torch.cat([scenario.observation(agent) for agent in self.agents], dim=1)


class Balance(Vmas):
    """Carry a package to its goal together."""
