"""Replicas written as words, and a world that obeys decisions about them."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from muster.serving.replicas import Replica, Standing

LETTERS = {
    "s": Standing.STARTING,
    "h": Standing.HEALTHY,
    "a": Standing.AVAILABLE,
    "u": Standing.UNHEALTHY,
    "x": Standing.HELD,
}


def replicas(words: str) -> list[Replica]:
    """Replicas by revision and standing: "1:aas 2:h" are three of revision 1 and one of revision 2.
    Capital letters are misplaced. The first of a word is the oldest, and the routes of "1:aas" are
    1a, 1b and 1c."""
    found = []
    for word in words.split():
        revision, _, letters = word.partition(":")
        for number, letter in enumerate(letters):
            found.append(
                Replica(
                    f"{revision}{chr(ord('a') + number)}",
                    int(revision),
                    LETTERS[letter.lower()],
                    float(number),
                    letter.isupper(),
                )
            )
    return found


def written(each: Iterable[Replica]) -> str:
    """Replicas as a word for each revision, the best first: "1:aa 2:s"."""
    letters = {standing: letter for letter, standing in LETTERS.items()}
    by_revision: dict[int, list[str]] = {}
    for one in each:
        letter = letters[one.standing]
        by_revision.setdefault(one.revision, []).append(letter.upper() if one.misplaced else letter)
    return " ".join(
        f"{revision}:{''.join(sorted(found, key=lambda at: 'ahsux'.index(at.lower())))}"
        for revision, found in sorted(by_revision.items())
    )


@dataclass(slots=True)
class World:
    """Replicas that come up, a second later become available, and leave their room a second after
    they were taken away.

    Args:
        broken: revisions whose replicas never come up: they fail to start, and are HELD.
    """

    all: list[Replica]
    now: float = 0.0
    broken: frozenset[int] = frozenset()
    made: Counter[int] = field(default_factory=Counter)
    failed: Counter[int] = field(default_factory=Counter)

    def obey(self, create: Mapping[int, int], remove: Sequence[str]) -> None:
        gone = set(remove)
        assert gone <= {each.route for each in self.all if each.live}
        self.all = [
            replace(each, standing=Standing.HELD) if each.route in gone else each
            for each in self.all
        ]
        for revision, count in create.items():
            for _ in range(count):
                self.made[revision] += 1
                route = f"{revision}-{self.made[revision]}"
                self.all.append(Replica(route, revision, Standing.STARTING, self.now))

    def pass_time(self) -> None:
        """One second later."""
        self.now += 1.0
        left = []
        for each in self.all:
            if each.standing is Standing.HELD:
                continue
            if each.standing is Standing.STARTING:
                if each.revision in self.broken:
                    self.failed[each.revision] += 1
                    each = replace(each, standing=Standing.HELD)
                else:
                    each = replace(each, standing=Standing.HEALTHY, since=self.now)
            elif each.standing is Standing.HEALTHY:
                each = replace(each, standing=Standing.AVAILABLE)
            left.append(each)
        self.all = left

    def serving(self, former: int | None = None) -> int:
        """Replicas that count: available ones, and healthy ones of another revision than the one
        that is rolled out."""
        return sum(each.available for each in self.all)
