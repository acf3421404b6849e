"""Faults of hosts: away, changed, slow, loud, taken by others; and what is left then."""

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from tests.patience import until
from tests.providers.sshd import SSHD, Hosts, deleted, order, refused

from muster.autoscaling.standing import CreateOutcome
from muster.providers import starting
from muster.providers.provider import Machine, Provider, ProviderError
from muster.providers.ssh import connection, fleet, making
from muster.providers.ssh.host_list import Host

pytestmark = pytest.mark.skipif(SSHD is None, reason="OpenSSH's server is not installed")

NOISE = 'seq 500; seq 500 >&2; exec sh -c "$SSH_ORIGINAL_COMMAND"'
UNHEARD = 'sh -c "$SSH_ORIGINAL_COMMAND" >/dev/null; sleep 5'
UNHEARD_ONCE = (
    'if [ -e {once} ]; then exec sh -c "$SSH_ORIGINAL_COMMAND"; fi; sh -c '
    '"$SSH_ORIGINAL_COMMAND" >{once}.new; if grep -q state {once}.new; then cat {once}.new; '
    "else mv {once}.new {once}; exit 1; fi"
)


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hosts]:
    monkeypatch.setattr(starting, "PAUSE_S", 0.1)
    with Hosts(tmp_path, 2) as made:
        yield made


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers are not waited for as long as usually."""
    monkeypatch.setattr(connection, "ANSWER_S", 1.0)
    monkeypatch.setattr(fleet, "_WORK_S", 1.0)
    monkeypatch.setattr(making, "GIVE_BACK_S", 3.0)


# Hosts that are not as they should be


def test_wrong_key_is_told(hosts: Hosts) -> None:
    (hosts.place / "authorized").write_text("")
    error = refused(hosts.provider(), order())
    assert (error.outcome, "does not let us in" in error.told) == (CreateOutcome.CREDENTIALS, True)
    with pytest.raises(ProviderError, match=r"credentials: .* does not let us in"):
        hosts.provider().check()
    with pytest.raises(ProviderError, match=r"credentials: .* does not let us in"):
        hosts.provider().list()


@pytest.mark.parametrize(
    ("mode", "text", "words"),
    [
        (0o644, None, "others may read"),
        (0o600, "nonsense", "is no key"),
        (None, None, "cannot read"),
    ],
)
def test_key_file_that_cannot_be_used_is_told(
    hosts: Hosts, mode: int | None, text: str | None, words: str
) -> None:
    key = hosts.place / "user_key"
    if mode is None:
        key.rename(hosts.place / "moved")
    else:
        key.chmod(mode)
    kept = (hosts.place / "moved" if mode is None else key).read_text()
    if text is not None:
        key.write_text(text)
    error = refused(hosts.provider(), order())
    assert (error.outcome, words in error.told) == (CreateOutcome.CREDENTIALS, True)
    key.write_text(kept)
    key.chmod(0o600)


def test_host_with_another_key_is_not_trusted(hosts: Hosts) -> None:
    changed, other = hosts.all
    changed.stop()
    changed.new_key()
    changed.start()
    error = refused(hosts.provider(listed=[changed]), order())
    assert error.outcome is CreateOutcome.CREDENTIALS
    assert "its host key is not the one that is known" in error.told
    assert hosts.claims() == {}

    (machine,) = hosts.provider().create(order())
    assert machine.id == other.id, "the others are taken meanwhile"
    with pytest.raises(ProviderError, match="host key"):
        hosts.provider().check()
    hosts.write_known()


def test_host_that_is_away_is_passed_over_and_named(hosts: Hosts) -> None:
    away, there = hosts.all
    away.stop()
    provider = hosts.provider()
    (machine,) = provider.create(order())
    assert machine.id == there.id
    listing = provider.list()
    assert ([each.id for each in listing.machines], listing.complete) == ([there.id], False)

    error = refused(provider, order("sl-2"))
    assert error.outcome is CreateOutcome.STOCK_OUT
    assert f"{there.id}: is claimed by slice sl-1 of this pool" in error.told
    assert away.id in error.told
    provider.check()


@pytest.mark.parametrize("said", [b"", b"hello\r\n" * 100, b"x" * 1000])
def test_host_that_speaks_no_ssh_is_passed_over(hosts: Hosts, said: bytes) -> None:
    hanging, there = hosts.all
    hanging.stop()
    with speaker(hanging.address, hanging.port, said):
        provider = hosts.provider(connect_timeout=1)
        (machine,) = provider.create(order())
        assert machine.id == there.id
        assert not provider.list().complete
        assert refused(provider, order("sl-2")).outcome is CreateOutcome.STOCK_OUT


@contextmanager
def speaker(address: str, port: int, said: bytes) -> Iterator[None]:
    """A server that says the same to its clients without an end; or nothing at all."""
    over = threading.Event()

    def speak() -> None:
        clients: list[socket.socket] = []
        while not over.wait(0.001):
            with suppress(TimeoutError):
                clients.append(server.accept()[0])
                clients[-1].setblocking(False)
            for client in clients:
                with suppress(OSError):
                    client.send(said)
        for client in clients:
            client.close()

    def free_again() -> socket.socket | None:
        with suppress(OSError):  # the former server's children may still be ending
            return socket.create_server((address, port))
        return None

    with until(free_again) as server:
        server.settimeout(0.01)
        thread = threading.Thread(target=speak)
        thread.start()
        yield
        over.set()
        thread.join(10)


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("loud", ["yes", "yes >&2", "sleep 5"])
def test_host_that_says_too_much_or_nothing_is_passed_over(hosts: Hosts, loud: str) -> None:
    odd, there = hosts.all
    odd.restart(loud)
    provider = hosts.provider()
    (machine,) = provider.create(order())
    assert machine.id == there.id
    assert not provider.list().complete
    assert odd.id in refused(provider, order("sl-2")).told


def test_what_a_shell_prints_before_is_passed_over(hosts: Hosts) -> None:
    for host in hosts.all:
        host.restart(NOISE)
    provider = hosts.provider()
    assert len(provider.create(order(machines=2))) == 2
    deleted(provider)
    assert hosts.claims() == {}


def test_disk_that_two_machines_share_is_told(hosts: Hosts) -> None:
    provider = hosts.provider(listed=hosts.all[:1])
    provider.create(order())
    marker = hosts.all[0].directory / "claim.json"
    kept = marker.read_text()
    marker.write_text(kept.replace('"machine": "', '"machine": "another'))
    with pytest.raises(ProviderError, match="shares with another machine"):
        provider.list()
    marker.write_text("{")
    with pytest.raises(ProviderError, match="is no claim"):
        provider.list()
    marker.write_text(kept)


def test_host_with_two_names_is_one_machine(hosts: Hosts) -> None:
    host = hosts.all[0]
    second = f"{host.second_address}:{host.port}"
    provider = hosts.provider(hosts=[host.id, second], directory=str(host.directory))
    (machine,) = provider.create(order())
    assert [each.id for each in provider.list().machines] == [host.id]
    pid = until((host.directory / "agent" / "pid").read_text)
    assert provider.create(order()) == (machine,)
    assert Path(f"/proc/{pid.strip()}").exists(), "it was not given back as one too many"

    error = refused(provider, order("sl-2"))
    assert f"{second}: is {host.id} under another name" in error.told
    deleted(provider)
    assert hosts.claims() == {}


# Answers that are lost


@pytest.mark.usefixtures("hurried")
def test_claim_whose_answer_was_lost_is_found_again(hosts: Hosts) -> None:
    host = hosts.all[0]
    provider = hosts.provider(listed=[host], notes="kept")
    provider.list()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(provider, "_find_former", lambda: None)  # looked before the answers were lost
        host.restart(UNHEARD)
        error = refused(provider, order())
    assert error.outcome is CreateOutcome.UNKNOWN
    assert host.id in error.told
    host.stop()
    assert refused(provider, order()).outcome is CreateOutcome.UNKNOWN, "it cannot be asked"
    with pytest.raises(ProviderError):
        provider.delete("sl-1")

    host.restart(None)
    (machine,) = provider.create(order())
    assert machine.id == host.id
    deleted(provider)
    assert hosts.claims() == {}


def test_host_whose_claim_got_lost_is_given_back_and_another_taken(hosts: Hosts) -> None:
    odd, other = hosts.all
    provider = hosts.provider(listed=[odd, other])
    odd.restart(UNHEARD_ONCE.format(once=hosts.place / "once"))
    (machine,) = provider.create(order())
    assert (hosts.place / "once").exists(), "one answer was lost"
    assert machine.id == other.id
    assert hosts.claims() == {other.id: "sl-1"}


def test_slice_that_cannot_be_whole_is_not_made(hosts: Hosts) -> None:
    one = hosts.provider("one")
    one.create(order())
    error = refused(hosts.provider("two"), order("sl-2", machines=2))
    assert error.outcome is CreateOutcome.STOCK_OUT
    assert "slice sl-1 of pool one" in error.told
    assert [*hosts.claims().values()] == ["sl-1"]


# Several that want the same


def test_of_pools_that_compete_for_a_host_one_gets_it(hosts: Hosts) -> None:
    pools = [hosts.provider(f"p-{number}", f"c-{number}") for number in range(4)]
    for pool in pools:
        pool.list()
    ready = threading.Barrier(len(pools))

    def create(pool: Provider) -> tuple[Machine, ...] | ProviderError:
        ready.wait(10)
        try:
            return pool.create(order(f"sl-{pool.scope.pool}"))
        except ProviderError as error:
            return error

    with ThreadPoolExecutor(len(pools)) as threads:
        answers = [*threads.map(create, pools)]

    made = [answer for answer in answers if not isinstance(answer, ProviderError)]
    assert len({machine.id for (machine,) in made}) == len(made) == 2
    for answer in answers:
        if isinstance(answer, ProviderError):
            assert answer.outcome is CreateOutcome.STOCK_OUT
            assert "is claimed by slice" in answer.told


def test_slices_of_a_pool_that_are_made_at_once_share_the_hosts(hosts: Hosts) -> None:
    provider = hosts.provider()
    with ThreadPoolExecutor(2) as threads:
        made = [*threads.map(lambda each: provider.create(order(each)), ("sl-1", "sl-2"))]
    assert {machine.id for (machine,) in made} == {host.id for host in hosts.all}


# Deletions


def test_host_that_is_away_is_not_gone(hosts: Hosts) -> None:
    away, other = hosts.all
    provider = hosts.provider(listed=[away], notes="kept")
    provider.create(order())
    away.stop()
    with pytest.raises(ProviderError) as raised:
        provider.delete("sl-1")
    assert raised.value.outcome is CreateOutcome.UNKNOWN
    assert away.id in raised.value.told

    off_the_list = hosts.provider(listed=[other], notes="kept")
    away.start()
    assert [machine.id for machine in off_the_list.list().machines] == [away.id]
    deleted(off_the_list)
    assert hosts.claims() == {}


def test_host_that_is_given_up_is_taken_again_once_it_was_emptied(hosts: Hosts) -> None:
    away, there = hosts.all
    (machine,) = hosts.provider(listed=[away], notes="kept").create(order())
    away.stop()
    provider = hosts.provider(listed=[there], notes="kept")
    with pytest.raises(ProviderError):
        provider.delete("sl-1")
    assert not provider.list().complete, "it is off the list, and may be claimed"
    provider.give_up("sl-1")
    assert (provider.list().machines, provider.list().complete) == ((), True)
    assert provider.create(order("sl-2"))[0].id == there.id

    away.start()
    both = hosts.provider(notes="kept")
    listed = {each.slice: each.id for each in both.list().machines}
    assert listed == {"sl-1": machine.id, "sl-2": there.id}
    assert refused(both, order("sl-3")).outcome is CreateOutcome.STOCK_OUT
    deleted(both, "sl-1")
    assert both.create(order("sl-3"))[0].id == away.id


def test_controller_without_notes_does_not_take_a_half_for_the_whole(hosts: Hosts) -> None:
    away, _ = hosts.all
    hosts.provider().create(order(machines=2))
    away.stop()
    provider = hosts.provider()
    assert len(provider.list().machines) == 1
    with pytest.raises(ProviderError):
        provider.delete("sl-1")
    away.start()
    deleted(provider)
    assert hosts.claims() == {}


def test_slice_is_gone_though_another_host_is_away(hosts: Hosts) -> None:
    provider = hosts.provider(notes="kept")
    (machine,) = provider.create(order())
    for host in hosts.all:
        if host.id != machine.id:
            host.stop()
    deleted(hosts.provider(notes="kept"))
    assert hosts.claims() == {}


def test_command_for_hosts_that_were_given_back_is_run(hosts: Hosts) -> None:
    done = hosts.place / "done"
    provider = hosts.provider(shutdown_command=["touch", str(done)])
    provider.create(order())
    deleted(provider)
    assert done.exists()


# Many hosts


def test_hosts_that_hang_do_not_keep_a_call_from_its_end() -> None:
    async def ask(host: Host, end_s: float) -> str:
        if int(host.address[3:]) % 2:
            await asyncio.sleep(60)
        return host.address

    many = [Host(f"gpu{number}") for number in range(5 * connection.AT_ONCE)]
    began_s = time.monotonic()
    answers = connection.ask_all(many, ask, 3.0)
    assert time.monotonic() - began_s < 20
    assert [*answers] == many
    faults = {each.fault for each in answers.values() if isinstance(each, connection.HostFault)}
    assert faults == {connection.Fault.UNANSWERED, connection.Fault.AWAY}
    answered = [host for host, answer in answers.items() if answer == host.address]
    assert len(answered) > connection.AT_ONCE / 2
