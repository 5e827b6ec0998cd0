"""Venues by name and place: files write the same ground with and without its town, and different grounds alike."""

from collections import Counter
from collections.abc import Iterable

from lockstep.workloads.cricket.matches import Match


def describe(match: Match) -> tuple[str, frozenset[str]]:
    """The ground's own name, and the places that the file puts it in."""
    name, *places = (part.strip() for part in match.venue.split(","))
    return name, frozenset(place for place in (*places, match.city) if place)


class Venues:
    """Numbers for the grounds of some matches: one name in one place, or in places that a file names together."""

    def __init__(self, matches: Iterable[Match]) -> None:
        seen = Counter(describe(match) for match in matches)
        self._number: dict[tuple[str, str], int] = {}
        self.names: list[str] = []
        for name in sorted({name for name, _ in seen if name}):
            spellings = {places: count for (other, places), count in seen.items() if other == name}
            self._add(name, spellings)

    def _add(self, name: str, spellings: dict[frozenset[str], int]) -> None:
        grounds: list[tuple[set[str], int]] = []
        for places, count in sorted(spellings.items(), key=lambda item: sorted(item[0])):
            joined, matches = set(places), count
            for other in [ground for ground in grounds if ground[0] & places]:
                grounds.remove(other)
                joined, matches = joined | other[0], matches + other[1]
            if places:
                grounds.append((joined, matches))
        # A file that gives no place means the ground of that name where most was played.
        for places, _ in sorted(grounds, key=lambda ground: (-ground[1], sorted(ground[0]))) or [(set(), 0)]:
            number = len(self.names)
            self.names.append(name if len(grounds) < 2 else f"{name}, {min(places)}")
            self._number.setdefault((name, ""), number)
            self._number.update({(name, place): number for place in places})

    def number(self, match: Match) -> int:
        """The number of a match's ground; -1 for one that is not among these."""
        name, places = describe(match)
        known = [self._number[name, place] for place in sorted(places) if (name, place) in self._number]
        return known[0] if known else self._number.get((name, ""), -1) if not places else -1
