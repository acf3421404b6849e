"""The account that a user of the cluster has on a machine."""

import os
import pwd
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.agent.account_errors import NoAccount
from muster.agent.accounts import Account, MachineAccounts
from muster.agent.config import AgentConfig
from muster.agent.users_directory import require_users_directory

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can become other users")

UIDS = range(300_000, 300_003)


@pytest.fixture
def users() -> Iterator[Path]:
    place = Path(tempfile.mkdtemp(prefix="muster-users-", dir="/tmp"))
    place.chmod(0o711)
    yield place
    shutil.rmtree(place)


def config(directory: Path, users: Path, **fields: object) -> AgentConfig:
    defaults: dict[str, object] = {"uids": UIDS, "users_directory": users, "cluster": "here"}
    return AgentConfig(directory, "127.0.0.1:1", "a1", **(defaults | fields))  # type: ignore[arg-type]


def of(accounts: MachineAccounts, owner: str) -> Account:
    account = accounts.of(owner)
    assert account is not None
    return account


def test_each_user_has_a_uid_of_its_own_in_all_its_projects(tmp_path: Path, users: Path) -> None:
    accounts = MachineAccounts(config(tmp_path, users))

    ada = of(accounts, "default/vision/ada")
    bob = of(accounts, "default/vision/bob")
    assert ada.uid != bob.uid
    assert {ada.uid, bob.uid} < set(UIDS)
    assert of(accounts, "default/text/ada") == ada
    assert of(accounts, "elsewhere/vision/ada").uid not in (ada.uid, bob.uid)
    assert ada.gains_privileges is False


def test_directory_that_users_cannot_enter_is_told_before_anything_runs(users: Path) -> None:
    require_users_directory(users / "new")
    users.chmod(0o700)
    with pytest.raises(NoAccount, match=f"users cannot enter {users} "):
        require_users_directory(users / "new")


def test_uid_stays_its_users_whatever_agent_asks_next(tmp_path: Path, users: Path) -> None:
    first = of(MachineAccounts(config(tmp_path, users)), "default/default/ada")
    of(MachineAccounts(config(tmp_path, users)), "default/default/bob")

    again = of(MachineAccounts(config(tmp_path, users)), "default/default/ada")

    assert again == first


def test_user_of_another_cluster_on_the_machine_is_somebody_else(
    tmp_path: Path, users: Path
) -> None:
    here = of(MachineAccounts(config(tmp_path, users)), "default/default/ada")
    there = of(MachineAccounts(config(tmp_path, users, cluster="there")), "default/default/ada")

    assert here.uid != there.uid


def test_uid_is_not_given_again_while_files_of_it_may_exist(tmp_path: Path, users: Path) -> None:
    (users / str(UIDS[0])).mkdir()

    assert of(MachineAccounts(config(tmp_path, users)), "default/default/ada").uid == UIDS[1]


@pytest.fixture
def subordinate_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file in the place of /etc/subuid."""
    file = tmp_path / "subuid"
    monkeypatch.setattr("muster.agent.uid_uses._SUBORDINATE_FILES", (file,))
    return file


def test_uid_that_somebody_may_take_on_in_a_container_is_given_to_nobody(
    tmp_path: Path, users: Path, subordinate_ids: Path
) -> None:
    subordinate_ids.write_text(f"# none\nbob:{UIDS[0] - 10}:11\ncarol:{UIDS[2]}:65536\nbroken\n")
    accounts = MachineAccounts(config(tmp_path, users))

    assert of(accounts, "default/default/ada").uid == UIDS[1]
    with pytest.raises(NoAccount, match="--uid-range"):
        accounts.of("default/default/eve")


def test_user_whose_uid_has_become_somebody_elses_too_has_no_account(
    tmp_path: Path, users: Path, subordinate_ids: Path
) -> None:
    uid = of(MachineAccounts(config(tmp_path, users)), "default/default/ada").uid
    subordinate_ids.write_text(f"bob:{uid}:65536\n")

    with pytest.raises(NoAccount, match=f"uid {uid} .* bob"):
        MachineAccounts(config(tmp_path, users)).of("default/default/ada")


def test_range_that_is_used_up_has_no_account_for_one_more(tmp_path: Path, users: Path) -> None:
    accounts = MachineAccounts(config(tmp_path, users))
    for number in range(len(UIDS)):
        accounts.of(f"default/default/user{number}")

    with pytest.raises(NoAccount, match="--uid-range"):
        accounts.of("default/default/one-more")


def test_home_is_the_users_alone(tmp_path: Path, users: Path) -> None:
    account = of(MachineAccounts(config(tmp_path, users)), "default/default/ada")

    assert _owned(Path(account.home)) == (account.uid, account.gid, 0o700)
    assert _owned(Path(account.home).parent) == (0, 0, 0o711)


@pytest.mark.parametrize("before", ["nothing", "the user's own", "one half made"])
def test_user_can_put_nothing_where_its_scratch_directories_are(
    tmp_path: Path, users: Path, before: str
) -> None:
    account = of(MachineAccounts(config(tmp_path, users)), "default/default/ada")
    scratch = Path(account.scratch)
    scratch.chmod(0o700)
    if before == "nothing":
        scratch.rmdir()
    elif before == "the user's own":
        os.chown(scratch, account.uid, account.gid)

    again = of(MachineAccounts(config(tmp_path, users)), "default/default/ada")

    assert again == account
    assert _owned(Path(account.scratch)) == (0, 0, 0o711)


def _owned(path: Path) -> tuple[int, int, int]:
    status = path.stat()
    return status.st_uid, status.st_gid, status.st_mode & 0o777


def test_mapped_user_has_the_account_that_it_is_mapped_to(tmp_path: Path, users: Path) -> None:
    entry = pwd.getpwnam("daemon")
    accounts = MachineAccounts(
        config(tmp_path, users, accounts={"ada": "daemon", "lab/bob": "daemon"})
    )

    ada = of(accounts, "default/default/ada")
    assert (ada.uid, ada.gid, ada.name, ada.home) == (
        entry.pw_uid,
        entry.pw_gid,
        "daemon",
        entry.pw_dir,
    )
    assert of(accounts, "lab/default/bob") == ada
    assert of(accounts, "lab/default/ada").uid in UIDS, "another domain's is somebody else"


def test_user_that_is_mapped_to_root_runs_as_the_agent(tmp_path: Path, users: Path) -> None:
    assert (
        MachineAccounts(config(tmp_path, users, accounts={"ada": "root"})).of("default/x/ada")
        is None
    )


@pytest.mark.parametrize("account", ["nobody", "no-such-account"])
def test_user_that_is_mapped_to_no_account_has_none(
    tmp_path: Path, users: Path, account: str
) -> None:
    accounts = MachineAccounts(config(tmp_path, users, accounts={"ada": account}))

    with pytest.raises(NoAccount, match=account):
        accounts.of("default/default/ada")


@pytest.mark.parametrize("user", ["root", "daemon", "nobody"])
def test_services_of_the_machine_are_nobodys_account_by_name(
    tmp_path: Path, users: Path, user: str
) -> None:
    accounts = MachineAccounts(config(tmp_path, users, system_accounts=True))

    assert of(accounts, f"default/default/{user}").uid in UIDS


def test_person_of_the_machine_has_its_own_account_if_the_operator_says_so(
    tmp_path: Path, users: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = pwd.struct_passwd(("ada", "x", 4242, 4243, "", "/home/ada", "/bin/sh"))
    known = pwd.getpwnam
    monkeypatch.setattr(pwd, "getpwnam", lambda name: entry if name == "ada" else known(name))
    monkeypatch.setattr(os, "getgrouplist", lambda _name, gid: [gid, 50, 0])

    ada = of(MachineAccounts(config(tmp_path, users, system_accounts=True)), "default/default/ada")

    assert (ada.uid, ada.gid, ada.groups, ada.home) == (4242, 4243, (4243, 50), "/home/ada")
    assert ada.gains_privileges is True
    assert of(MachineAccounts(config(tmp_path, users)), "default/default/ada").uid in UIDS


@pytest.mark.parametrize(
    ("mode", "word"), [(0o700, "cannot enter"), (0o733, "others may write there")]
)
def test_place_that_users_cannot_enter_or_others_can_write_is_refused(
    tmp_path: Path, users: Path, mode: int, word: str
) -> None:
    users.chmod(mode)

    with pytest.raises(NoAccount, match=word):
        MachineAccounts(config(tmp_path, users)).of("default/default/ada")


def test_place_that_is_a_link_or_somebody_elses_is_refused(tmp_path: Path, users: Path) -> None:
    (users / "link").symlink_to(users)
    (users / "owned").mkdir(mode=0o711)
    os.chown(users / "owned", 4242, 4242)

    for name, word in (("link", "symbolic link"), ("owned", "another user")):
        with pytest.raises(NoAccount, match=word):
            MachineAccounts(config(tmp_path, users / name)).of("default/default/ada")


def test_link_in_place_of_a_users_directory_is_refused(tmp_path: Path, users: Path) -> None:
    account = of(MachineAccounts(config(tmp_path, users)), "default/default/ada")
    Path(account.home).rmdir()
    Path(account.home).symlink_to("/etc")

    with pytest.raises(NoAccount, match="is not its"):
        MachineAccounts(config(tmp_path, users)).of("default/default/ada")


@pytest.mark.parametrize("owner", ["", "ada", "default//"])
def test_what_is_no_owner_has_no_account(tmp_path: Path, users: Path, owner: str) -> None:
    with pytest.raises(NoAccount):
        MachineAccounts(config(tmp_path, users)).of(owner)
