"""Revoked tokens and removed agents and users stay so, whatever backup is restored."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Table, select
from tests.control.world import ADA, BOB, ROOT, World

from muster.app import revocations as listed
from muster.app.maintenance.backup import back_up
from muster.app.maintenance.checking import check
from muster.app.maintenance.restoring import Restored, TokenChoice, restore
from muster.app.maintenance.revoking import Revoked
from muster.app.revocations import FILE, RevocationLog, read_revocations
from muster.control.accounts import add_user, ensure_user, remove_user
from muster.control.agent.requests import AgentRequests
from muster.control.group.requests import GroupRequests
from muster.control.identity.tokens import (
    charge,
    create_join_token,
    create_token,
    revoke_join_token,
    revoke_token,
)
from muster.control.modules import cluster_entities
from muster.core.errors import Conflict
from muster.core.resources import Resources
from muster.core.specs import JobSpec
from muster.core.specs.account import JoinTokenSpec, TokenSpec, UserSpec
from muster.core.states import AgentStatus
from muster.store import schema
from muster.store.database import sqlite_url
from muster.store.database.reading import reading
from muster.store.queries.history import read_changes
from muster.store.tokens import JoinToken, Token

CLUSTER = "0123456789abcdef"
ONE_CPU = Resources(cpu_milli=1000, memory_bytes=2**30)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    path = tmp_path / "home"
    path.mkdir(mode=0o700)
    return path


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A cluster with two agents, an administrator, Ada and Bob."""
    world = World(tmp_path, {"a": ONE_CPU, "b": ONE_CPU})
    world.ask(lambda work, _: ensure_user(work, ROOT.owner))
    world.ask(lambda work, _: ensure_user(work, ADA.owner))
    world.ask(lambda work, _: ensure_user(work, BOB.owner))
    world.ask(lambda work, parts: parts[GroupRequests].name_cluster(work, CLUSTER))
    yield world
    world.close()


def url(world: World) -> str:
    return str(world.store.engine.url)


def noted(world: World, home: Path) -> None:
    """Have all that is revoked from now on be in the list of the home."""
    with world.store.engine.connect() as connection:
        RevocationLog(home, world.plane, world.clock, CLUSTER).begin(connection)


def made(world: World, user: str) -> Token:
    spec = TokenSpec(name="laptop", user=user)
    token: Token = world.ask(lambda work, _: create_token(work, ROOT, spec))[0]
    return token


def invited(world: World, agent: str) -> JoinToken:
    spec = JoinTokenSpec(agent=agent)
    token: JoinToken = world.ask(lambda work, _: create_join_token(work, ROOT, spec))[0]
    return token


def remove_agent(world: World, name: str) -> None:
    agent = world.agent(name)
    agent.online = False
    live = world.plane.live
    world.run_until(lambda: live.agents[agent.id].status is AgentStatus.LOST)
    world.ask(lambda work, parts: parts[AgentRequests].remove(work, ROOT, agent.id))


def restored(file: Path, home: Path, choice: TokenChoice = TokenChoice.LISTED) -> Restored:
    target, revocations = sqlite_url(home / "muster.db"), read_revocations(home)
    return restore(target, file, choice=choice, revocations=revocations)


def rows(home: Path, table: Table, column: str = "id") -> set[Any]:
    with reading(sqlite_url(home / "muster.db")) as (connection, _):
        return {value for (value,) in connection.execute(select(table.c[column]))}


def test_all_that_was_revoked_after_the_backup_stays_revoked(
    world: World, home: Path, tmp_path: Path
) -> None:
    noted(world, home)
    revoked, kept = made(world, "ada"), made(world, "ada")
    of_bob = made(world, "bob")
    unwelcome, used, open_ = (invited(world, name) for name in ("x", "y", "z"))
    credentials = {each.id: each.credential_hash for each in world.plane.live.agents.values()}
    back_up(url(world), tmp_path / "backup")
    world.ask(lambda work, _: revoke_token(work, ROOT, revoked.id))
    world.ask(lambda work, _: revoke_join_token(work, unwelcome.id))
    world.ask(lambda work, _: charge(work, used))
    world.ask(lambda work, parts: remove_user(work, parts, ROOT, "default", "bob", cancel=False))
    remove_agent(world, "b")
    put = restored(tmp_path / "backup", home)
    assert put.revoked == Revoked(2, 2, ("b",), ("default/bob",))
    assert {kept.id} <= rows(home, schema.tokens)
    assert not {revoked.id, of_bob.id} & rows(home, schema.tokens)
    join_tokens = rows(home, schema.join_tokens)
    assert open_.id in join_tokens
    assert not {unwelcome.id, used.id} & join_tokens
    assert rows(home, schema.users, "name") == {"root", "ada"}
    hashes = rows(home, schema.agents, "credential_hash")
    assert credentials[world.agent("a").id] in hashes
    assert len(hashes & {*credentials.values()}) == 1, "b's is good no more"
    found = check(sqlite_url(home / "muster.db"))
    assert [each for each in found if each.found or each.trouble] == []
    with reading(sqlite_url(home / "muster.db")) as (connection, _):
        told = read_changes(connection, cluster_entities(), ROOT).items
    by_restore = {each.name for each in told if [diff.key for diff in each.changes] == ["restore"]}
    assert by_restore == {revoked.id, of_bob.id, unwelcome.id, used.id, "default/bob"}


def test_removed_user_with_work_in_the_backup_stays_without_a_token(
    world: World, home: Path, tmp_path: Path
) -> None:
    noted(world, home)
    token = made(world, "bob")
    spec = JobSpec(name="j", command="sleep 60", resources={"cpu": 1, "memory": 2**20})
    world.submit(spec, BOB)
    back_up(url(world), tmp_path / "backup")
    world.ask(lambda work, parts: remove_user(work, parts, ROOT, "default", "bob", cancel=True))
    put = restored(tmp_path / "backup", home)
    assert (put.revoked.kept_users, put.revoked.users) == (("default/bob",), ())
    assert token.id not in rows(home, schema.tokens)
    assert "bob" in rows(home, schema.users, "name")


def test_user_who_was_added_again_is_not_removed(world: World, home: Path, tmp_path: Path) -> None:
    noted(world, home)
    token = made(world, "bob")
    back_up(url(world), tmp_path / "backup")
    world.ask(lambda work, parts: remove_user(work, parts, ROOT, "default", "bob", cancel=False))
    again = UserSpec(domain="default", name="bob", projects=("default",))
    world.ask(lambda work, _: add_user(work, again))
    restored(tmp_path / "backup", home)
    assert "bob" in rows(home, schema.users, "name")
    assert token.id not in rows(home, schema.tokens)


def test_restore_without_a_list_asks_what_becomes_of_tokens(
    world: World, home: Path, tmp_path: Path
) -> None:
    token = made(world, "ada")
    invited(world, "x")
    back_up(url(world), tmp_path / "backup")
    world.ask(lambda work, _: revoke_token(work, ROOT, token.id))
    with pytest.raises(Conflict, match=r"Say --revoke-tokens, .* or --keep-tokens"):
        restored(tmp_path / "backup", home)
    assert not (home / "muster.db").exists()
    put = restored(tmp_path / "backup", home, TokenChoice.NONE)
    invitations = len(world.plane.live.accounts.join_tokens)
    assert put.revoked == Revoked(tokens=1, join_tokens=invitations)
    assert rows(home, schema.tokens) == rows(home, schema.join_tokens) == set()
    restored(tmp_path / "backup", home, TokenChoice.KEPT)
    assert rows(home, schema.tokens) == {token.id}


@pytest.mark.parametrize(
    "text",
    [
        {"cluster": "another", "since": 0.0},
        {"cluster": CLUSTER, "since": time.time() + 3600.0},
        {"cluster": CLUSTER},
    ],
)
def test_list_that_does_not_reach_back_to_the_backup_is_not_believed(
    text: dict[str, object], world: World, home: Path, tmp_path: Path
) -> None:
    back_up(url(world), tmp_path / "backup")
    (home / FILE).write_text(json.dumps(text) + "\n")
    with pytest.raises(Conflict, match="does not reach back to it"):
        restored(tmp_path / "backup", home)


def test_list_that_was_damaged_is_not_believed_and_begins_anew(world: World, home: Path) -> None:
    noted(world, home)
    assert read_revocations(home).are_known(CLUSTER, time.time())
    with (home / FILE).open("a") as file:
        file.write('{"revoked": "tok')
    assert not read_revocations(home).are_known(CLUSTER, time.time())
    noted(world, home)
    token = made(world, "ada")
    world.ask(lambda work, _: revoke_token(work, ROOT, token.id))
    assert read_revocations(home).are_known(CLUSTER, time.time())
    assert [each.name for each in read_revocations(home).names] == [token.id]


def test_what_a_crash_kept_out_of_the_list_is_added_at_the_next_start(
    world: World, home: Path
) -> None:
    noted(world, home)
    (home / FILE).rename(home / "kept")
    token = made(world, "ada")
    world.ask(lambda work, _: revoke_token(work, ROOT, token.id))
    remove_agent(world, "b")
    (home / "kept").replace(home / FILE)
    assert read_revocations(home).names == frozenset()
    noted(world, home)
    assert {str(each) for each in read_revocations(home).names} == {
        f"token:{token.id}",
        f"agent:{world.agent('b').id}",
    }
    before = (home / FILE).read_bytes()
    noted(world, home)
    assert (home / FILE).read_bytes() == before, "nothing is said twice"


def test_list_that_grew_too_long_forgets_the_older_half_and_says_so(
    world: World, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listed, "MAX_LINES", 10)
    lines = [{"cluster": CLUSTER, "since": 1.0}]
    lines += [{"revoked": f"token:tok-{n}", "at": float(n)} for n in range(2, 14)]
    (home / FILE).write_text("".join(json.dumps(line) + "\n" for line in lines))
    noted(world, home)
    kept = read_revocations(home)
    assert sorted(each.name for each in kept.names) == [f"tok-{n}" for n in (10, 11, 12, 13, 9)]
    assert not kept.are_known(CLUSTER, 8.0)
    assert kept.are_known(CLUSTER, 9.0)


def test_list_that_cannot_be_written_is_written_with_the_next(
    world: World, home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    noted(world, home)
    (home / FILE).rename(home / "kept")
    (home / FILE).mkdir()
    first, second = made(world, "ada"), made(world, "ada")
    world.ask(lambda work, _: revoke_token(work, ROOT, first.id))
    assert "tried again with the next" in caplog.text
    (home / FILE).rmdir()
    (home / "kept").rename(home / FILE)
    world.ask(lambda work, _: revoke_token(work, ROOT, second.id))
    assert {each.name for each in read_revocations(home).names} == {first.id, second.id}


def test_what_is_revoked_after_a_line_that_a_full_disk_cut_off_is_in_the_list(
    world: World, home: Path
) -> None:
    noted(world, home)
    token = made(world, "ada")
    with (home / FILE).open("a") as file:
        file.write('{"revoked": "tok')
    world.ask(lambda work, _: revoke_token(work, ROOT, token.id))
    assert [each.name for each in read_revocations(home).names] == [token.id]
