"""Identifies venues by name and place: a ground is written with or without its town, and grounds share names."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from lockstep.workloads.cricket.matches.match import Match


@dataclass(frozen=True)
class Venues:
    """Numbers the grounds of some matches; a ground is a name in a place, or in places that a file lists together."""

    names: list[str] = field(default_factory=list)
    numbers: dict[tuple[str, str], int] = field(default_factory=dict)
    """(name, place) -> number; an empty place stands for the ground of that name with most matches."""

    @staticmethod
    def of(matches: Iterable[Match]) -> "Venues":
        """Find the grounds of these matches."""
        seen = Counter(_describe(match) for match in matches)
        venues = Venues()
        for name in sorted({name for name, _ in seen if name}):
            venues._add(name, {places: count for (other, places), count in seen.items() if other == name})
        return venues

    def number(self, match: Match) -> int:
        """The number of a match's ground; -1 if it is unknown."""
        name, places = _describe(match)
        for place in sorted(places) or [""]:
            if (name, place) in self.numbers:
                return self.numbers[name, place]
        return -1

    def as_json(self) -> dict[str, Any]:
        """The venues as JSON values."""
        return {"names": self.names, "numbers": [[*key, number] for key, number in self.numbers.items()]}

    @staticmethod
    def from_json(value: dict[str, Any]) -> "Venues":
        """Inverse of `as_json`."""
        return Venues(value["names"], {(name, place): number for name, place, number in value["numbers"]})

    def _add(self, name: str, spellings: dict[frozenset[str], int]) -> None:
        """Add the grounds of one name, given how many matches list each set of places."""
        grounds: list[tuple[set[str], int]] = []
        # Sets that share a place are the same ground: one file with both "A" and "B" joins those with one.
        for places, count in sorted(spellings.items(), key=lambda item: sorted(item[0])):
            joined, matches = set(places), count
            for other in [found for found in grounds if found[0] & places]:
                grounds.remove(other)
                joined, matches = joined | other[0], matches + other[1]
            if places:
                grounds.append((joined, matches))
        # Most matches first, as the first ground of a name also gets the entry without a place.
        for ground, _ in sorted(grounds, key=lambda found: (-found[1], sorted(found[0]))) or [(set(), 0)]:
            number = len(self.names)
            self.names.append(name if len(grounds) < 2 else f"{name}, {min(ground)}")
            self.numbers.setdefault((name, ""), number)
            self.numbers.update({(name, place): number for place in ground})


def _describe(match: Match) -> tuple[str, frozenset[str]]:
    """The ground's name, and the places that the file lists: after the name's first comma, and its city."""
    name, *places = (part.strip() for part in match.venue.split(","))
    return name, frozenset(place for place in (*places, match.city) if place)
