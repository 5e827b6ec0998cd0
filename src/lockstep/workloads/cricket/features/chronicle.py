"""Careers as they were known on the day of a match: learned from training matches of earlier days alone.

Counts of outcomes are exact to the day: running sums over the days of each player, team and venue. The additive model
cannot be had by running sums, so it is fitted again whenever the deliveries known have grown by a quarter; a match uses
the last fit that only has earlier days. All these fits together cost as much as five on all matches. Matches of the
same day do not see each other. A match without a date sees nothing and is seen by none: it may have been any day.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date

import numpy as np
import torch
from torch import Tensor

from lockstep.workloads.cricket.features.knowledge import COUNTED, CareerInputs, Knowledge, entity_sizes
from lockstep.workloads.cricket.features.skills import CLASSES
from lockstep.workloads.cricket.matches.match import Match
from lockstep.workloads.cricket.matches.scorebook import Scorebook

UNDATED = 0
"""The day of a match without a date; all other days are ordinals from 1 on."""
_DAYS = 1 << 22
"""More than there are days until the year 9999, to combine an id and a day to one key."""
_FIRST_FIT, _GROWTH = 1_000, 1.25
"""Deliveries of the first fit, about four matches, and how much more there are at each further one."""
_ROWS, _VALUES, _SIZE = ".rows", ".values", ".size"
"""Suffixes of a packed table's tensors."""


def day_of(match: Match) -> int:
    """The day of a match as an ordinal."""
    return date.fromisoformat(match.date).toordinal() if match.date else UNDATED


def days_of(book: Scorebook) -> np.ndarray:
    """(N,) int64: the day of each delivery."""
    return np.array([day_of(match) for match in book.matches], np.int64)[book.match]


@dataclass(frozen=True)
class DayCounts:
    """Outcomes of the members of one kind, such as strikers, as they were known on any day."""

    keys: Tensor
    """(n,) int64, ascending: id and day, for every day on which the id had a delivery."""
    totals: Tensor
    """(n, 7) int64: the id's outcomes up to and including that day."""

    @staticmethod
    def of(ids: np.ndarray, days: np.ndarray, label: np.ndarray) -> "DayCounts":
        """Count deliveries; those of the unknown id 0 and without a date are left out."""
        kept = (ids > 0) & (days != UNDATED)
        keys, place = np.unique(ids[kept] * _DAYS + days[kept], return_inverse=True)
        counts = np.bincount(place * CLASSES + label[kept], minlength=len(keys) * CLASSES).reshape(-1, CLASSES)
        # One running sum over all ids; what it had before the id's first day is subtracted.
        running = np.concatenate([np.zeros((1, CLASSES), np.int64), counts.cumsum(0)])
        start = np.searchsorted(keys, keys // _DAYS * _DAYS)
        return DayCounts(torch.as_tensor(keys), torch.as_tensor(running[1:] - running[start]))

    def before(self, ids: np.ndarray, days: np.ndarray) -> Tensor:
        """(n, 7): the outcomes of each id on earlier days than the one given with it."""
        last = np.searchsorted(self.keys.numpy(), ids * _DAYS + days) - 1
        found = torch.zeros(len(ids), CLASSES, dtype=torch.int64)
        # The key before may be another id's, whose days are not this one's.
        own = (last >= 0) & (self.keys.numpy()[np.maximum(last, 0)] // _DAYS == ids) if len(self.keys) else last >= 0
        found[torch.as_tensor(own)] = self.totals[torch.as_tensor(last[own])]
        return found


@dataclass(frozen=True)
class Chronicle:
    """What was known when: counts by the day, and the additive model as it was fitted from time to time."""

    starts: Tensor
    """(fits,) int64, ascending: the first day on which each fit may be used."""
    fits: tuple[dict[str, Tensor], ...]
    """The tensors of the knowledge that each fit gave, packed: most players have not played in most years."""
    counts: dict[str, DayCounts]
    """By the entities of COUNTED."""
    sizes: dict[str, int]
    """Number of ids of each of COUNTED."""

    @staticmethod
    def learn(inputs: CareerInputs, sizes: dict[str, int]) -> "Chronicle":
        """Learn from deliveries, as seen from every day."""
        book, label = inputs.scoreboard.book, inputs.scoreboard.label
        days = days_of(book)
        starts = _fit_days(days)
        learned = (Knowledge.learn(inputs, (days != UNDATED) & (days < start), sizes) for start in starts)
        fits = tuple(_packed(knowledge) for knowledge in learned)
        counts = {entity: DayCounts.of(inputs.of_entity(entity), days, label) for entity in COUNTED}
        return Chronicle(torch.tensor(starts), fits, counts, entity_sizes(sizes))

    def views(self, inputs: CareerInputs) -> Iterator[tuple[np.ndarray, Knowledge, dict[str, Tensor]]]:
        """Yield rows that share a fit, its knowledge, and by entity the counts (n, 7) that each row's day knew."""
        days = days_of(inputs.scoreboard.book)
        fit = np.searchsorted(self.starts.numpy(), days, side="right") - 1
        for number in np.unique(fit):
            rows = np.flatnonzero(fit == number)
            known = {
                entity: counts.before(inputs.of_entity(entity)[rows], days[rows])
                for entity, counts in self.counts.items()
            }
            # A non-striker is described as a batter.
            known["nonstriker"] = self.counts["striker"].before(inputs.of_entity("nonstriker")[rows], days[rows])
            yield rows, self.on(int(self.starts[number])), known

    def on(self, day: int) -> Knowledge:
        """What was known on a day."""
        number = int(np.searchsorted(self.starts.numpy(), day, side="right")) - 1
        counts = {
            entity: of_entity.before(np.arange(size), np.full(size, day))
            for (entity, size), of_entity in zip(self.sizes.items(), self.counts.values(), strict=True)
        }
        return _unpacked(self.fits[number], counts)

    @property
    def everything(self) -> Knowledge:
        """What is known after the last day."""
        return self.on(int(self.starts[-1]))

    def tensors(self) -> dict[str, Tensor]:
        """All tensors by name, for storage."""
        parts = {f"fit.{number}.{name}": value for number, fit in enumerate(self.fits) for name, value in fit.items()}
        for entity, counts in self.counts.items():
            parts |= {f"days.{entity}.keys": counts.keys, f"days.{entity}.totals": counts.totals}
            parts[f"days.{entity}.size"] = torch.tensor(self.sizes[entity])
        return parts | {"starts": self.starts}

    @staticmethod
    def from_tensors(tensors: dict[str, Tensor]) -> "Chronicle":
        """Inverse of `tensors`."""
        starts = tensors["starts"]
        fits: list[dict[str, Tensor]] = [{} for _ in starts]
        for name, value in tensors.items():
            if name.startswith("fit."):
                _, number, rest = name.split(".", 2)
                fits[int(number)][rest] = value
        counts = {name: DayCounts(tensors[f"days.{name}.keys"], tensors[f"days.{name}.totals"]) for name in COUNTED}
        return Chronicle(starts, tuple(fits), counts, {name: int(tensors[f"days.{name}.size"]) for name in COUNTED})


def _fit_days(days: np.ndarray) -> list[int]:
    """First days of use of all fits: of one without any match, of those between, and of one with all matches."""
    known, deliveries = np.unique(days[days != UNDATED], return_counts=True)
    starts, wanted = [UNDATED], float(_FIRST_FIT)
    for day, total in zip(known.tolist(), deliveries.cumsum().tolist(), strict=True):
        if total >= wanted or day == known[-1]:
            starts.append(day + 1)
            wanted = total * _GROWTH
    return starts


def _packed(knowledge: Knowledge) -> dict[str, Tensor]:
    """The tensors of a knowledge but for its counts; of large tables only the rows that are not zero."""
    packed = {}
    for name, value in knowledge.tensors().items():
        if name.startswith("count."):
            continue
        if value.dim() < 2:
            packed[name] = value
            continue
        rows = torch.nonzero((value != 0).any(1)).squeeze(1)
        packed |= {name + _ROWS: rows, name + _VALUES: value[rows], name + _SIZE: torch.tensor(len(value))}
    return packed


def _unpacked(packed: dict[str, Tensor], counts: dict[str, Tensor]) -> Knowledge:
    tensors = {f"count.{entity}": value for entity, value in counts.items()}
    for name, value in packed.items():
        if name.endswith(_VALUES):
            stem = name.removesuffix(_VALUES)
            tensors[stem] = torch.zeros(int(packed[stem + _SIZE]), value.shape[1])
            tensors[stem][packed[stem + _ROWS]] = value
        elif not name.endswith((_ROWS, _SIZE)):
            tensors[name] = value
    return Knowledge.from_tensors(tensors)
