"""The settings of supervised learning, over all ranks, and the checks between them. Nothing here needs torch."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from lockstep.config import outside
from lockstep.config.config import AlgorithmSettings, AnyConfig, Headline
from lockstep.config.fields import Alias, Count, Fraction, OffOrCount, Pattern, Range
from lockstep.config.run_settings import RunSettings
from lockstep.errors import UserError

CLASS_LOSSES = ("cross_entropy", "focal")
_LOSSES = Pattern(
    r"cross_entropy|focal|mse|l1|given/.+|.+:.+", "one of cross_entropy, focal, mse, l1, or module:function"
)


@dataclass(frozen=True, kw_only=True)
class SupervisedSettings(AlgorithmSettings):
    """Supervised learning: epochs and batches, optimiser, loss, and early stopping."""

    epochs: Annotated[int, Range(at_least=1, at_most=1_000_000)] = 100
    """Maximum number of passes over the training samples."""
    batch_size: Count = 256
    """Samples per update, over all ranks."""
    eval_batch_size: Count = 4096
    """Samples per batch of a validation, over all ranks."""
    learning_rate: Annotated[float, Range(above=0, at_most=1), Alias("lr")] = 1e-3
    """AdamW's learning rate after the warm-up."""
    lr_schedule: Literal["constant", "linear", "cosine", "plateau"] = "cosine"
    """The learning rate stays constant, falls to 0 at the last epoch (linear, cosine), or falls at every plateau."""
    plateau_factor: Annotated[float, Range(above=0, below=1)] = 0.5
    """With lr_schedule plateau: factor by which the learning rate falls."""
    plateau_patience: Count = 5
    """With lr_schedule plateau: epochs without improvement before the learning rate falls."""
    weight_decay: Fraction = 0.01
    """AdamW's weight decay; not applied to biases and scales."""
    adam_eps: Annotated[float, Range(above=0, at_most=1)] = 1e-6
    """AdamW's epsilon."""
    adam_beta2: Annotated[float, Range(at_least=0, below=1)] = 0.999
    """AdamW's beta2, the decay of its average of squared gradients."""
    max_grad_norm: Annotated[float, Range(above=0), Alias("grad_clip")] = 1.0
    """Largest gradient norm, over all weights together; larger gradients are scaled down to it."""
    ema_decay: Annotated[float, Range(at_least=0, below=1)] = 0.0
    """Decay of the moving average of the weights, which validation and predictions use; 0 = no average."""
    loss: Annotated[
        str,
        Pattern(
            r"cross_entropy|focal|mse|l1|given/.+|.+:.+", "one of cross_entropy, focal, mse, l1, or module:function"
        ),
    ] = "cross_entropy"
    """The loss to minimise; a function of (prediction, target) returns one number for each sample."""
    focal_gamma: Annotated[float, Range(at_least=0, at_most=10)] = 2.0
    """With loss focal: how strongly samples that are already predicted well are discounted."""
    label_smoothing: Annotated[float, Range(at_least=0, below=1)] = 0.0
    """Share of each label's probability that is spread over all classes."""
    class_weights: bool = False
    """Weight classes inversely to their frequency among all training samples."""
    class_weight_power: Annotated[float, Range(at_least=0, at_most=2)] = 1.0
    """With class_weights: exponent of the weights; 0.5 = square root."""
    patience: OffOrCount = 10
    """Epochs without improvement of the validation loss before the run ends, as all ranks agree; 0 = never."""
    min_delta: Annotated[float, Range(at_least=0)] = 1e-4
    """Least decrease of the validation loss that counts as an improvement."""
    min_epochs: OffOrCount = 0
    """Epochs before early stopping may end the run."""

    length_field: ClassVar[str] = "epochs"
    per_rank_fields: ClassVar[tuple[str, ...]] = ("batch_size",)
    learning_rate_fields: ClassVar[tuple[str, ...]] = ("learning_rate",)
    # Every epoch ends with a validation, so none is due in between. It uses all samples: with few, noise would decide
    # which weights are the best.
    run_defaults: ClassVar[Mapping[str, Any]] = {"eval_every": 10**15, "eval_episodes": 10**9}
    headline: ClassVar[Headline] = (
        ("train/epoch", "epoch", ".2f"),
        ("train/loss", "loss", ".4f"),
        ("eval/log_loss", "eval log loss", ".4f"),
        ("eval/accuracy", "accuracy", ".4f"),
        ("train/learning_rate", "rate", ".1e"),
    )

    @property
    def classifies(self) -> bool:
        """Whether the loss is one of classes."""
        return self.loss in CLASS_LOSSES

    def watches(self, run: RunSettings) -> bool:
        """Whether the run needs a validation after every epoch."""
        return bool(run.eval_every or self.patience or self.lr_schedule == "plateau")

    def work(self, shared: Callable[[int], str]) -> list[tuple[str, str]]:
        """Lines of the plan: batch, learning rate, epochs and loss, and their division among ranks."""
        averaged = f", moving average of weights {self.ema_decay:g}" if self.ema_decay else ""
        weighted = ", class weights" if self.class_weights else ""
        return [
            ("batch", f"{shared(self.batch_size)}, learning rate {self.learning_rate:g} {self.lr_schedule}{averaged}"),
            ("epochs", f"{self.epochs} at most, patience {self.patience or 'none'}"),
            ("loss", f"{self.loss}{weighted}, weight decay {self.weight_decay:g}"),
        ]

    def validate(self) -> None:
        """Check that what concerns classes is only given with a loss of classes; make a file's path absolute."""
        object.__setattr__(self, "loss", outside.absolute_name(self.loss))
        if not self.classifies and (self.class_weights or self.label_smoothing):
            name = "class_weights" if self.class_weights else f"label_smoothing {self.label_smoothing:g}"
            raise UserError(
                f"{name}: is for classes, and loss {self.loss} has none; leave it out, or use cross_entropy"
            )
        if self.class_weight_power != 1.0 and not self.class_weights:
            raise UserError(
                f"class_weight_power {self.class_weight_power:g} has no effect without class weights; "
                "add --class-weights or leave it out"
            )

    def check(self, config: AnyConfig) -> None:
        """Check that every lane gets samples of a batch."""
        lanes = config.effective_lanes
        if self.batch_size < lanes:
            raise UserError(
                f"batch_size {self.batch_size} is less than the run's {lanes} lanes; raise it to {lanes}, "
                f"or set --lanes {self.batch_size}"
            )
