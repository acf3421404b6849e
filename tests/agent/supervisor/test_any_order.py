"""Operations in any order: no end is lost, none is told twice, no device is shared."""

import os
import random
import signal
import time
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest
from tests.agent.supervisor.accounts import ADA, BOB, Users, spawners_of
from tests.agent.supervisor.driver import Driver, Event

from muster.agent.supervisor.launch import launch

Key = tuple[str, int]

OPERATIONS = 120
COMMANDS = (
    ["true"],
    ["true"],
    ["sh", "-c", "exit 3"],
    ["sleep", "0.05"],
    ["sleep", "60"],
    ["sh", "-c", "setsid sleep 60 & exit 0"],
    ["sh", "-c", "trap '' TERM; sleep 60; sleep 60"],
    ["/no/such/program"],
)


class Chaos:
    """An agent without a plan. Every kernel started directly brings a device of its own, unless it
    is of shape z, for which there are none."""

    def __init__(self, driver: Driver, seed: int, accounts: list[dict[str, Any] | None]) -> None:
        self.driver = driver
        self.random = random.Random(seed)
        self.accounts = accounts
        self.granted: set[Key] = set()  # room of their own
        self.generations: Counter[str] = Counter()
        self.over: set[Key] = set()  # the supervisor may have forgotten these: not to start again
        self.accepted: set[Key] = set()
        self.devices = 0

    def act(self) -> None:
        actions = {
            self.start: 10,
            self.start_again: 3,
            self.stop: 5,
            self.recall: 3,
            self.renew: 4,
            self.listen: 6,
            self.acknowledge: 2,
            self.return_: 1,
            self.pause: 1,
            self.signal_spawners: 1,
            self.kill: 0.3,
        }
        (action,) = self.random.choices(list(actions), list(actions.values()))
        action()

    def start(self) -> None:
        kernel = f"k{self.random.randrange(30)}"
        self.generations[kernel] += 1
        self._order(kernel, self.generations[kernel])

    def start_again(self) -> None:
        if self.generations:
            kernel = self.random.choice(list(self.generations))
            generation = self.random.randint(1, self.generations[kernel])
            if (kernel, generation) not in self.over:
                self._order(kernel, generation)

    def _order(self, kernel: str, generation: int) -> None:
        queued = self.random.random() < 0.5
        shape = self.random.choice("xyzzzz")
        self.devices += 1
        if not queued:
            self.granted.add((kernel, generation))
        order: Event = {
            "id": kernel,
            "generation": generation,
            "queued": queued,
            "shape": shape,
            "devices": [] if queued or shape == "z" else [self.devices],
        }
        workdir = "/missing" if self.random.random() < 0.05 else None
        account = self.random.choice(self.accounts)
        groups = [4321] if self.random.random() < 0.1 else []  # its user was in a group for a while
        of_account = {} if account is None else {"account": {**account, "groups": groups}}
        command = self.random.choice(COMMANDS)
        self.driver.start(order, command=command, workdir=workdir, grace_s=0.05, **of_account)

    def stop(self) -> None:
        kernel = f"k{self.random.randrange(31)}"
        generation = self.generations[kernel] or 1
        self.driver.stop(kernel, self.random.choice((0, 0.05, 1)), generation)

    def recall(self) -> None:
        names = [f"k{self.random.randrange(31)}" for _ in range(3)]
        keys = [{"id": name, "generation": self.generations[name] or 1} for name in names]
        self.driver.say(op="recall", kernels=keys)

    def renew(self) -> None:
        self.driver.lease(self.random.choice((0.03, 5, None, None, None, None)))

    def listen(self) -> None:
        self.driver.listen()

    def acknowledge(self) -> None:
        if self.driver.events:
            self.over |= {key_of(event) for event in self.driver.events if event["kind"] == "ended"}
            self.driver.acknowledge()

    def return_(self) -> None:
        self.driver.settle()
        self._note_accepted()

    def pause(self) -> None:
        """Have the supervisor stand still while the agent goes on and kernels end."""
        os.kill(self.driver.pid, signal.SIGSTOP)
        try:
            for _ in range(3):
                self.random.choice((self.start, self.stop, self.recall, self.renew))()
            time.sleep(self.random.choice((0, 0.02, 0.06)))
        finally:
            os.kill(self.driver.pid, signal.SIGCONT)

    def signal_spawners(self) -> None:
        """Do to a spawner what its user may do."""
        self._signal(self.random.choice((signal.SIGSTOP, signal.SIGCONT, signal.SIGKILL)))

    def _signal(self, number: signal.Signals) -> None:
        uids = {account["uid"] for account in self.accounts if account is not None}
        for pid in [pid for uid in uids for pid in spawners_of(self.driver, uid)]:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def kill(self) -> None:
        self.return_()
        self.driver.kill()
        launch(self.driver.directory)
        self.driver.attach()

    def hand_over(self) -> None:
        """After all that a kernel can be started, and another one follows it."""
        self._signal(signal.SIGCONT)
        self.driver.lease(None)
        account = self.accounts[0]
        orders: list[Event] = [{"id": "first"}, {"id": "heir", "queued": True}]
        orders = [{**order, "shape": "of its own"} for order in orders]
        self.granted.add(("first", 1))
        of_account: Event = {} if account is None else {"account": account}
        self.driver.start(*orders, **of_account)
        self.driver.ended("heir")

    def _note_accepted(self) -> None:
        kernels = self.driver.state["kernels"]
        self.accepted |= {(entry["id"], entry["generation"]) for entry in kernels}

    def quiet(self) -> None:
        """Stop whatever lives, until nothing does and all has been told."""
        while live := [
            entry
            for entry in self.driver.settle()["kernels"]
            if entry["status"] not in ("ended", "create_failed")
        ]:
            for entry in live:
                self.driver.stop(entry["id"], 0, entry["generation"])
            with suppress(IndexError):
                self.driver.ended(live[0]["id"], live[0]["generation"])
        self._note_accepted()
        last = self.driver.state["next_seq"] - 1
        self.driver.until(lambda: max(e["seq"] for e in self.driver.events) == last)


@pytest.mark.parametrize("seed", range(6))
def test_no_end_is_lost_or_doubled(supervisor: Driver, seed: int) -> None:
    judge(Chaos(supervisor, seed, [None]))


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become other users")
@pytest.mark.parametrize("seed", range(6))
def test_no_end_of_a_users_kernel_is_lost_or_doubled(
    supervisor: Driver, users: Users, seed: int
) -> None:
    ada = users.account(ADA)
    judge(Chaos(supervisor, seed, [ada, ada, ada, users.account(BOB), None]))


def judge(chaos: Chaos) -> None:
    for _ in range(OPERATIONS):
        chaos.act()
    chaos.hand_over()
    chaos.quiet()

    events = sorted(chaos.driver.events, key=lambda event: int(event["seq"]))
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert_each_has_one_end(events, chaos.accepted)
    assert_devices_are_held_once(events)
    assert_heirs_follow_their_predecessors(events)
    assert_each_has_room(events, chaos.granted)


def key_of(event: Event) -> Key:
    return event["kernel"], event["generation"]


def assert_each_has_one_end(events: list[Event], accepted: set[Key]) -> None:
    told = Counter(
        (key_of(event), event["kind"])
        for event in events
        if event.get("reason") != "unknown_kernel"
    )
    for (key, kind), count in told.items():
        assert kind == "create_failed" or count == 1, (key, kind, count)
        if kind == "started":
            assert told[key, "ended"] == 1, key
    for key in accepted:
        assert told[key, "ended"] or told[key, "create_failed"], key


def assert_devices_are_held_once(events: list[Event]) -> None:
    holders: dict[int, Key] = {}
    for event in events:
        if event["kind"] == "started":
            for device in event.get("devices", []):
                assert holders.setdefault(device, key_of(event)) == key_of(event)
        elif event["kind"] == "ended":
            holders = {
                device: holder for device, holder in holders.items() if holder != key_of(event)
            }
    assert not holders


def assert_heirs_follow_their_predecessors(events: list[Event]) -> None:
    heirs: dict[Key, Key] = {}
    for event in events:
        if "predecessor" in event:
            assert heirs[key_of(event)] == tuple(event["predecessor"])
        if event["kind"] == "create_failed":  # it may be ordered anew, and wait for another's end
            heirs.pop(key_of(event), None)
        if "heir" in event:
            assert tuple(event["heir"]) not in heirs
            heirs[event["heir"][0], event["heir"][1]] = key_of(event)


def assert_each_has_room(events: list[Event], granted: set[Key]) -> None:
    """Each kernel that runs was granted its room, or has it from one kernel, which has ended."""
    for event in events:
        if event["kind"] == "started":
            assert key_of(event) in granted or "predecessor" in event
