"""The contract of a workload: its problem, settings and presets, and the algorithms and networks it can use.

A workload from outside the package is a subclass of `Workload`, given to the commands as `module:Class`. Importing one
should not import torch: `--help` and `list` need only its settings and presets, and should be fast.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from lockstep.algorithms import registry as algorithms
from lockstep.config.config import RUN, AnyConfig, Layout, NetworkSettings, Preset, WorkloadSettings
from lockstep.config.fields import nearest
from lockstep.config.outside import absolute_name, is_outside, refuse_own_code
from lockstep.config.sources import Resolved, choices, choices_in, from_yaml, resolve
from lockstep.config.values import shown
from lockstep.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

    from lockstep.distributed.world import World
    from lockstep.reporting.display import Narrator
    from lockstep.reporting.evaluation import Evaluation
    from lockstep.run.learner import Learner
    from lockstep.storage.program_file import Program


class Workload(ABC):
    """A problem that models are trained on. What only some workloads can do is in `workloads.capabilities`."""

    name: ClassVar[str]
    summary: ClassVar[str]
    """A few words for `lockstep list`."""
    settings: ClassVar[type[WorkloadSettings]] = WorkloadSettings
    """Its own settings."""
    algorithms: ClassVar[tuple[str, ...]]
    """The algorithms that can train it; the first is the default."""
    networks: ClassVar[Mapping[str, Mapping[str, type[NetworkSettings]]]] = {}
    """Its own networks, by algorithm; the first is the default. The algorithm's own networks can be chosen, too."""
    presets: ClassVar[Mapping[str, Preset]] = {}
    """Named configurations to start from."""
    defaults: ClassVar[Mapping[str, Any]] = {}
    """Other defaults for settings of the run or the algorithm."""
    environments: ClassVar[Mapping[str, tuple[str, str]]] = {}
    """Its Gymnasium environments: by id, the entry points of the single and the vector environment."""
    baselines: ClassVar[tuple[str, ...]] = ()
    """Policies or predictors without a network, to compare a trained model with."""
    preloads: ClassVar[tuple[str, ...]] = ()
    """Modules that every rank needs, imported once before ranks are forked."""

    @property
    def target(self) -> str:
        """The name it is loaded by, also when a run is resumed: its own, or `module:Class` from outside."""
        # A class from outside has to be importable by its qualified name in the process that resumes the run.
        kind = type(self)
        inside = kind.__module__.startswith("lockstep.workloads.")
        return self.name if inside else f"{kind.__module__}:{kind.__qualname__}"

    @abstractmethod
    def problem(self, config: Any, world: "World") -> Any:
        """The problem that the configuration's algorithm learns on this rank. Called by every rank."""

    def fit(self, config: Any, explicit: Collection[str]) -> tuple[AnyConfig, list[str]]:
        """Check that what a configuration names exists, and choose sizes for the device if it asks for that.

        `explicit`: settings that the user gave. Also returns what was found and chosen, a line each.
        """
        return config, []

    def check_kept(self, config: Any, model: Path) -> None:  # noqa: B027 - most workloads need nothing else
        """Raise UserError if something that a stored model needs besides its weights is missing."""

    def read_foreign(self, config: Any, path: Path) -> "Mapping[str, Tensor]":
        """Weights that another program stored (.pt, .pth, .zip), under the names of the configuration's network.

        By default a state dict that has our names already.
        """
        from lockstep.storage.foreign_weights import read_state_dict

        return read_state_dict(path)

    def adapted_weights(
        self,
        config: Any,
        world: "World",
        source: Path,
        weights: "Mapping[str, Tensor]",
        needed: "Mapping[str, Tensor]",
    ) -> "Mapping[str, Tensor]":
        """The weights of a model at `source` for this configuration's network, which has the weights `needed`.

        For weights that mean another thing with other data, such as a row for each name. Called by every rank.
        """
        return weights

    def narrator(self, config: Any, world: "World") -> "Narrator | None":
        """A function that reports the progress of a run in the workload's own format, if it has one."""
        return None

    def judge(self, config: Any, learner: "Learner", world: "World") -> "Callable[[int, int], Evaluation]":
        """A function (episodes, seed) that evaluates a trained model; by default the evaluation used in training."""
        return learner.evaluate

    def more_results(
        self, config: Any, results: dict[str, Any], trained_on: Mapping[str, str] | None
    ) -> dict[str, Any]:
        """Additional entries for an evaluation's results.

        `trained_on`: the facts about its data that were kept with the model (`Learner.data_record`); None = unknown.
        """
        return {}

    def program(self, config: Any, learner: "Learner") -> "Program":
        """A trained model as a function of tensors, for `lockstep export --format onnx | torch`."""
        return learner.program()

    # The methods below are the same for all workloads; subclasses need not override them.

    def build(self, config: AnyConfig, world: "World") -> "Learner":
        """Bind the configuration's algorithm to this problem on this rank. Called by every rank."""
        return algorithms.load(config.run.algorithm).build(config, world, self.problem(config, world))

    def networks_for(self, algorithm: str) -> dict[str, type[NetworkSettings]]:
        """Every network that an algorithm can use for this workload, the default first."""
        return {**self.networks.get(algorithm, {}), **algorithms.load(algorithm).networks}

    def layout(self, algorithm: str = "", network: str = "") -> Layout:
        """The settings that exist for an algorithm and a network; by default the first ones."""
        algorithm = algorithm or self.algorithms[0]
        # An algorithm from outside the package decides itself what it can train.
        if ":" not in algorithm:
            algorithm = _known(algorithm, self.algorithms, f"algorithm for {self.name}")
        networks = self.networks_for(algorithm)
        network = network or next(iter(networks))
        if is_outside(network):
            network, settings = absolute_name(network), self._function_settings(algorithm, network)
        else:
            network = _known(network, networks, f"network for {self.name} with {algorithm}")
            settings = networks[network]
        return Layout(
            algorithms.load(algorithm).settings,
            self.settings,
            network=settings,
            algorithm_name=algorithm,
            workload_name=self.name,
            network_name=network,
            defaults=tuple(self.defaults.items()),
        )

    def _function_settings(self, algorithm: str, network: str) -> type[NetworkSettings]:
        """The settings of a network that a function of the user makes."""
        found = algorithms.load(algorithm).function_network
        if found is None:
            raise UserError(
                f"network {shown(network)}: algorithm {algorithm} takes no network from a function; "
                f"known: {', '.join(self.networks_for(algorithm))}"
            )
        return found

    def config(self, algorithm: str = "", network: str = "", **values: Any) -> AnyConfig:
        """The configuration with these settings, and defaults for the rest."""
        return self.layout(algorithm, network).config(values)

    def preset(self, name: str = "base", algorithm: str = "", network: str = "") -> AnyConfig:
        """The complete configuration of a preset, with another algorithm or network if given."""
        values = dict(self.presets[_known(name, self.presets, f"preset of {self.name}")].values)
        own = self.layout(values.get("algorithm", ""), values.get("network", ""))
        layout = self.layout(algorithm or own.algorithm_name, network or _same_network(own, algorithm))
        if layout.algorithm_name != own.algorithm_name:
            # Sizes tuned for one algorithm do not suit another, which brings its own values for the usual presets.
            ours = {RUN, self.name}
            values = {key: value for key, value in values.items() if own.schema.section_of[key] in ours}
            values |= algorithms.load(layout.algorithm_name).presets.get(name, {})
        # Another network may lack some of the preset's settings.
        known = layout.schema.settings
        return layout.config({key: value for key, value in values.items() if key in known and key not in _CHOICES})

    def resolve(
        self, preset: str, config_file: str | Path | None = None, overrides: Sequence[str] = ()
    ) -> Resolved[AnyConfig]:
        """Combine a preset, a YAML file and flags, in rising priority."""
        chosen = choices(overrides, config_file)
        return resolve(self.preset(preset, **chosen), config_file=config_file, overrides=overrides)

    def read_config(self, text: str, source: str = "config.yaml", stored_in: Path | None = None) -> AnyConfig:
        """Parse a configuration from YAML; missing settings keep their defaults.

        `stored_in`: the folder of a stored run or model. Anybody may have written it, so code in it is not run.
        """
        chosen = choices_in(text, source)
        for name in chosen.values():
            if stored_in is not None and is_outside(name):
                refuse_own_code(name, stored_in)
        return from_yaml(text, self.layout(**chosen), source)


_CHOICES = ("algorithm", "network")


def _same_network(own: Layout, algorithm: str) -> str:
    """A preset's network; empty (the default network) if another algorithm was chosen."""
    return own.network_name if algorithm in ("", own.algorithm_name) else ""


def _known(name: str, known: Collection[str], what: str) -> str:
    """The name in its canonical spelling (`-` counts as `_`); raises UserError if it is not known."""
    spelled = name.replace("-", "_")
    if spelled in known:
        return spelled
    near = nearest(spelled, list(known))
    hint = f"the nearest is {near}; " if near else ""
    raise UserError(f"{shown(name)}: unknown {what}; {hint}known: {', '.join(known)}")
