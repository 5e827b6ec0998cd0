"""From what the user gave, or from nothing, to the tables that a model is trained and tested on."""

from dataclasses import dataclass

from lockstep.workloads.cricket.table import DeliveryTable, Entities


@dataclass(frozen=True)
class Splits:
    """Training, validation and test deliveries; ids and careers of all three come from the training matches."""

    train: DeliveryTable
    validation: DeliveryTable
    test: DeliveryTable | None
    entities: Entities
