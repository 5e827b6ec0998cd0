"""Self-play: a pool of earlier versions of the actor, as opponents."""

from collections.abc import Mapping

from torch import Tensor, nn

from lockstep.rl.target_networks import follow, target_of


class OpponentPool:
    """Earlier versions of an actor, the oldest replaced in turn; updated in place, as recorded graphs need."""

    def __init__(self, actor: nn.Module, count: int) -> None:
        self.networks = [target_of(actor) for _ in range(count)]

    def add(self, actor: nn.Module, number: int) -> None:
        """Store the actor's current weights as version `number`, which replaces version `number - count`."""
        # The caller counts versions, so that the pool has no counter of its own to save and restore.
        follow(self.networks[number % len(self.networks)], actor, 1.0)

    def reset(self, actor: nn.Module) -> None:
        """Replace all versions by the actor's current weights."""
        for number in range(len(self.networks)):
            self.add(actor, number)

    def state(self) -> dict[str, Tensor]:
        """All weights by name."""
        return {
            f"past.{number}.{name}": weight
            for number, network in enumerate(self.networks)
            for name, weight in network.state_dict().items()
        }

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Restore what `state` returned."""
        for number, network in enumerate(self.networks):
            prefix = f"past.{number}."
            network.load_state_dict({k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)})
