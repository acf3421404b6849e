"""Replicas written as words, and a world that obeys decisions about them."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from muster.serving.replicas import Replica, Standing

LETTERS = {
    "s": Standing.STARTING,
    "w": Standing.WITHDRAWN,
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
        by_revision.setdefault(one.revision, []).append(
            letter.upper() if one.misplaced and one.live else letter
        )
    return " ".join(
        f"{revision}:{''.join(sorted(found, key=lambda at: 'ahwsux'.index(at.lower())))}"
        for revision, found in sorted(by_revision.items())
    )


@dataclass(slots=True)
class World:
    """Replicas that are healthy a second after they were made, and available another second later;
    a second after they were taken away their room is free.

    Args:
        broken: a revision whose replicas fail to start.
        failed: how many of them did.
    """

    all: list[Replica]
    broken: int | None = None
    now: float = 0.0
    made: int = 0
    failed: int = 0

    def obey(self, create: Mapping[int, int], remove: Sequence[str]) -> None:
        gone = set(remove)
        assert len(gone) == len(remove)
        assert gone <= {each.route for each in self.all if each.live}
        assert all(count > 0 for count in create.values())
        self.all = [
            replace(each, standing=Standing.HELD) if each.route in gone else each
            for each in self.all
        ]
        for revision, count in create.items():
            for _ in range(count):
                self.made += 1
                route = f"new-{self.made}"
                self.all.append(Replica(route, revision, Standing.STARTING, self.now))

    def later(self, slow: Collection[str] = ()) -> None:
        """One second later.

        Args:
            slow: routes for which nothing changes in it.
        """
        self.now += 1.0
        self.all = [
            each if each.route in slow else self._next(each)
            for each in self.all
            if each.live or each.route in slow
        ]

    def _next(self, each: Replica) -> Replica:
        if each.standing is Standing.STARTING:
            if each.revision == self.broken:
                self.failed += 1
                return replace(each, standing=Standing.HELD)
            return replace(each, standing=Standing.HEALTHY, since=self.now)
        if each.standing is Standing.WITHDRAWN:
            return replace(each, standing=Standing.HEALTHY, since=self.now)
        if each.standing is Standing.HEALTHY:
            return replace(each, standing=Standing.AVAILABLE)
        return each

    def turn(self, route: str, standing: Standing) -> None:
        """Have something happen to a replica."""
        self.all = [
            replace(each, standing=standing) if each.route == route else each for each in self.all
        ]

    @property
    def available(self) -> int:
        return sum(each.available for each in self.all)

    @property
    def serving(self) -> int:
        """The replicas that get requests."""
        return sum(each.serves for each in self.all)

    @property
    def room(self) -> int:
        """The replicas that have room, live or HELD."""
        return len(self.all)
