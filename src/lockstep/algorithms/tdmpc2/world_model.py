"""The settings of TD-MPC2's networks, and how they are built from them. Nothing here needs torch before that."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from lockstep.algorithms.tdmpc2.model.sizes import IMAGE_CELLS, MODEL_SIZES, OtherSizes
from lockstep.algorithms.tdmpc2.settings import TDMPC2Settings, check_order
from lockstep.config.config import AnyConfig, NetworkSettings
from lockstep.config.fields import Count, Range
from lockstep.errors import UserError

if TYPE_CHECKING:
    from lockstep.algorithms.tdmpc2.model.networks import TDMPC2Model
    from lockstep.rl.problem import EnvProblem

Width = Annotated[int, Range(at_least=0, at_most=16_384)]


@dataclass(frozen=True, kw_only=True)
class WorldModelSettings(NetworkSettings):
    """The world model and the policy prior."""

    model_size: int = 5
    """Millions of parameters: 1, 5, 19, 48 or 317; the next six fields override parts of it."""
    enc_dim: Width = 0
    """Width of the encoder; 0 = by model_size, as for the next fields."""
    num_enc_layers: Annotated[int, Range(at_least=0, at_most=64)] = 0
    """Layers of the encoder."""
    mlp_dim: Width = 0
    """Width of the other networks."""
    latent_dim: Width = 0
    """Size of a latent state; a multiple of simnorm_dim."""
    num_q: Annotated[int, Range(at_least=0, at_most=64)] = 0
    """Number of value functions."""
    task_dim: Annotated[int, Range(at_least=0, at_most=4096)] = 0
    """Size of a task embedding, if there are several tasks."""
    num_channels: Annotated[int, Range(at_least=1, at_most=4096)] = 32
    """Channels of the encoder's convolutions, if observations are images."""
    simnorm_dim: Count = 8
    """Size of the SimNorm groups, whose features add up to one."""
    dropout: Annotated[float, Range(at_least=0, below=1)] = 0.01
    """Dropout probability after the first layer of the value functions."""
    num_bins: Annotated[int, Range(at_least=2, at_most=4096)] = 101
    """Bins in which rewards and values are predicted."""
    vmin: float = -10.0
    """Lowest bin, in symlog units."""
    vmax: float = 10.0
    """Highest bin, in symlog units."""
    log_std_min: float = -10.0
    """Least log standard deviation of the policy prior."""
    log_std_max: float = 2.0
    """Largest log standard deviation of the policy prior."""

    def size(self, part: str, other: OtherSizes | None = None) -> int:
        """One of the sizes: the field itself if set, else by model_size from `other` or MODEL_SIZES."""
        # 0 means unset, so `or` below falls back to the table.
        table = {**MODEL_SIZES[self.model_size], **(other or {}).get(self.model_size, {})}
        return getattr(self, part) or table[part]

    def validate(self) -> None:
        """Check that model_size exists and that minima are below maxima."""
        if self.model_size not in MODEL_SIZES:
            nearest = min(MODEL_SIZES, key=lambda size: abs(size - self.model_size))
            raise UserError(
                f"model_size {self.model_size}: no such size; the nearest is {nearest}; "
                f"allowed: {', '.join(map(str, MODEL_SIZES))}"
            )
        for less, more in (("vmin", "vmax"), ("log_std_min", "log_std_max")):
            check_order(self, less, more)
        # Equal bounds pass the check above, but bins need a width.
        if self.vmin == self.vmax:
            raise UserError(f"vmin and vmax are both {self.vmin:g}; raise vmax")
        self.check_latent()

    def check_latent(self, other: OtherSizes | None = None, images: bool = False) -> None:
        """Check that a latent state can be divided into SimNorm groups; `other` as in `size`."""
        latent = self.size("latent_dim", other)
        if images and latent % IMAGE_CELLS:
            raise UserError(
                f"latent_dim {latent} must be a multiple of {IMAGE_CELLS}, the cells of the last convolution, if "
                "observations are images; change it"
            )
        if latent % self.simnorm_dim:
            raise UserError(f"latent_dim {latent} must be a multiple of simnorm_dim {self.simnorm_dim}; change one")

    def build(self, problem: "EnvProblem", config: AnyConfig) -> "TDMPC2Model":
        """The networks for a problem's observations, actions and tasks; the same initial weights on every rank."""
        from lockstep.algorithms.tdmpc2.model.discrete import Bins
        from lockstep.algorithms.tdmpc2.model.networks import Sizes, TDMPC2Model
        from lockstep.algorithms.tdmpc2.problem import sizes_of, spaces_of

        assert isinstance(config.algorithm, TDMPC2Settings)
        spaces, other = spaces_of(problem, config.algorithm.episodic), sizes_of(problem)
        # Again, with the problem's own sizes, which `validate` does not know.
        self.check_latent(other, images=spaces.image is not None)
        sizes = Sizes(
            encoder=self.size("enc_dim", other),
            encoder_layers=self.size("num_enc_layers", other),
            hidden=self.size("mlp_dim", other),
            latent=self.size("latent_dim", other),
            values=self.size("num_q", other),
            task=self.size("task_dim", other) if spaces.tasks > 1 else 0,
            simplex=self.simnorm_dim,
            log_std=(self.log_std_min, self.log_std_max),
            bins=Bins(self.vmin, self.vmax, self.num_bins),
            dropout=self.dropout,
            channels=self.num_channels,
        )
        return TDMPC2Model(sizes, spaces, config.run.seed)
