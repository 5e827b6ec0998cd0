"""What supervised learning can be told, over all ranks, and which numbers go together."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from lockstep.config.fields import Alias, Count, Fraction, OffOrCount, Range, Steps
from lockstep.config.run_config import RunConfig
from lockstep.errors import UserError


@dataclass(frozen=True, kw_only=True)
class SupervisedConfig(RunConfig):
    """Supervised learning: how often the samples are seen, what is minimised, and when it is enough."""

    epochs: Annotated[int, Range(at_least=1, at_most=1_000_000)] = 100
    """Passes over the training samples, at most."""
    batch_size: Count = 256
    """Samples of one update, over all ranks."""
    eval_batch_size: Count = 4096
    """Samples measured together in a validation, over all ranks."""
    eval_every: Annotated[Steps, Alias("eval_freq")] = 10**15
    """Samples between validations besides the one after every epoch; 0 = never choose a best."""
    eval_episodes: Annotated[int, Range(at_least=1, at_most=10**9)] = 10**9
    """Validation samples to measure on, at most."""
    learning_rate: Annotated[float, Range(above=0, at_most=1), Alias("lr")] = 1e-3
    """AdamW's step size after the warm-up."""
    lr_schedule: Literal["constant", "linear", "cosine", "plateau"] = "cosine"
    """How the learning rate goes to 0 at the last epoch, that it stays, or that it falls where nothing is gained."""
    plateau_factor: Annotated[float, Range(above=0, below=1)] = 0.5
    """With lr_schedule plateau: what the rate is multiplied by."""
    plateau_patience: Count = 5
    """With lr_schedule plateau: epochs without a gain after which that is done."""
    weight_decay: Fraction = 0.01
    """AdamW's weight decay; biases and scales have none."""
    adam_eps: Annotated[float, Range(above=0, at_most=1)] = 1e-6
    """AdamW's epsilon."""
    adam_beta2: Annotated[float, Range(at_least=0, below=1)] = 0.999
    """How slowly AdamW forgets squared gradients."""
    max_grad_norm: Annotated[float, Range(above=0), Alias("grad_clip")] = 1.0
    """Longest gradient, over all weights together; a longer one is shortened to this."""
    ema_decay: Annotated[float, Range(at_least=0, below=1)] = 0.0
    """Share that the average of the weights, which is what is measured, keeps at every update; 0 = no average."""
    loss: Literal["cross_entropy", "focal"] = "cross_entropy"
    """What is minimised."""
    focal_gamma: Annotated[float, Range(at_least=0, at_most=10)] = 2.0
    """With loss focal: how little the samples count that are already right."""
    label_smoothing: Annotated[float, Range(at_least=0, below=1)] = 0.0
    """Share of each label that is spread over all classes."""
    class_weights: bool = False
    """Let rare classes count more: inversely to their frequency among all training samples."""
    class_weight_power: Annotated[float, Range(at_least=0, at_most=2)] = 1.0
    """With class_weights: the power of that; 0.5 = by the square root."""
    patience: OffOrCount = 10
    """Epochs without a gain in validation log loss after which the run ends, as all ranks agree; 0 = never."""
    min_delta: Annotated[float, Range(at_least=0)] = 1e-4
    """Fall of the validation log loss that is a gain."""
    min_epochs: OffOrCount = 0
    """Epochs before which patience does not end the run."""

    length_field: ClassVar[str] = "epochs"
    per_rank_fields: ClassVar[tuple[str, ...]] = ("batch_size",)
    learning_rate_fields: ClassVar[tuple[str, ...]] = ("learning_rate",)
    headline: ClassVar[tuple[tuple[str, str, str], ...]] = (
        ("train/epoch", "epoch", ".2f"),
        ("train/loss", "loss", ".4f"),
        ("eval/log_loss", "eval log loss", ".4f"),
        ("eval/accuracy", "accuracy", ".4f"),
        ("train/learning_rate", "rate", ".1e"),
    )

    @property
    def watches(self) -> bool:
        """Whether the run needs a validation after every epoch."""
        return bool(self.eval_every or self.patience or self.lr_schedule == "plateau")

    def work(self, shared: Callable[[int], str]) -> list[tuple[str, str]]:
        """Batch, rate and loss, and who holds how much of them."""
        averaged = f", average of the weights {self.ema_decay:g}" if self.ema_decay else ""
        weighted = ", class weights" if self.class_weights else ""
        return [
            ("batch", f"{shared(self.batch_size)}, learning rate {self.learning_rate:g} {self.lr_schedule}{averaged}"),
            ("epochs", f"{self.epochs} at most, patience {self.patience or 'none'}"),
            ("loss", f"{self.loss}{weighted}, weight decay {self.weight_decay:g}"),
        ]

    def validate(self) -> None:
        """See that every lane has work, and that class weights and their power go together."""
        super().validate()
        if self.batch_size < self.effective_lanes:
            raise UserError(
                f"batch_size {self.batch_size} is less than the run's {self.effective_lanes} lanes; raise it to "
                f"{self.effective_lanes}, or set --lanes {self.batch_size}"
            )
        if self.class_weight_power != 1.0 and not self.class_weights:
            raise UserError(
                f"class_weight_power {self.class_weight_power:g} is the power of class weights; "
                "add --class-weights or leave it out"
            )
