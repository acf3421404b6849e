"""The uid that the cluster allotted to a user, on a machine that may know better."""

import os
import pwd
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.agent.test_accounts import config, of, subordinate_ids, users

from muster.agent.account_errors import NoAccount, NoUid, UidClash
from muster.agent.accounts import MachineAccounts
from muster.agent.users_directory import given_by_machine
from muster.core.reasons import ReasonCode
from muster.core.uids import ClusterUid

__all__ = ["subordinate_ids", "users"]

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can become other users")

ADA, BOB = "default/default/ada", "default/default/bob"
CHOSEN = range(400_000, 400_010)
UID = ClusterUid("c1", 400_004)


def accounts(directory: Path, users: Path, **fields: object) -> MachineAccounts:
    """The accounts of an agent whose operator lets the cluster choose some uids, beside those that
    the agent gives by itself."""
    return MachineAccounts(config(directory, users, cluster_uids=CHOSEN, **fields))


def uid_of(made: MachineAccounts, owner: str, uid: ClusterUid | None = UID) -> int:
    account = made.of(owner, uid)
    assert account is not None
    assert (account.gid, account.name) == (account.uid, f"muster-{account.uid}")
    return account.uid


def refusal(made: MachineAccounts, owner: str, uid: ClusterUid = UID) -> str:
    with pytest.raises(UidClash) as refused:
        made.of(owner, uid)
    assert refused.value.code is ReasonCode.UID_CLASH
    return str(refused.value)


def test_user_has_the_uid_of_the_cluster_and_a_home(tmp_path: Path, users: Path) -> None:
    made = accounts(tmp_path, users)
    assert uid_of(made, ADA) == 400_004
    home = Path(made.of(ADA, UID).home)  # type: ignore[union-attr]
    assert home == users / "400004" / "home"
    assert (home.stat().st_uid, home.stat().st_gid, home.stat().st_mode & 0o777) == (
        *(400_004, 400_004),
        0o700,
    )
    assert (users / "400004" / "owner").read_text() == "c1 default/ada"


def test_agents_of_one_cluster_on_a_machine_agree_whatever_they_call_it(
    tmp_path: Path, users: Path
) -> None:
    assert uid_of(accounts(tmp_path, users, cluster="/one"), ADA) == 400_004
    assert uid_of(accounts(tmp_path, users, cluster="/two"), ADA) == 400_004


def test_agent_of_an_older_controller_gives_uids_by_itself(tmp_path: Path, users: Path) -> None:
    made = accounts(tmp_path, users)
    assert uid_of(made, ADA, None) == 300_000
    assert uid_of(made, BOB, None) == 300_001


def test_uid_outside_of_what_the_operator_allows_is_refused(tmp_path: Path, users: Path) -> None:
    made = accounts(tmp_path, users)
    for uid in (0, 1000, 399_999, 400_010, 2**40, -1):
        assert "--uid-range" in refusal(made, ADA, ClusterUid("c1", uid))
    assert list(users.iterdir()) == []


def test_uid_of_an_account_of_the_machine_is_refused(
    tmp_path: Path, users: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = pwd.struct_passwd(("carol", "x", 400_004, 400_004, "", "/", "/bin/sh"))
    known = pwd.getpwuid
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: entry if uid == 400_004 else known(uid))
    assert "account or group carol: give that other ids" in refusal(accounts(tmp_path, users), ADA)


def test_uid_that_somebody_may_take_on_in_a_container_is_refused(
    tmp_path: Path, users: Path, subordinate_ids: Path
) -> None:
    subordinate_ids.write_text("bob:400000:10\n")
    assert "subordinate ids of bob" in refusal(accounts(tmp_path, users), ADA)


def test_uid_that_another_user_of_the_machine_has_is_refused(tmp_path: Path, users: Path) -> None:
    uid_of(accounts(tmp_path, users), ADA)
    said = refusal(accounts(tmp_path, users), BOB)
    assert f"was given to default/ada of another cluster or before, as {users}/400004 says" in said
    assert "default/ada" in refusal(accounts(tmp_path, users), ADA, ClusterUid("c2", 400_004))
    (users / "400005").mkdir()
    assert "somebody" in refusal(accounts(tmp_path, users), BOB, ClusterUid("c1", 400_005))


def test_user_for_whom_the_cluster_has_no_uid_left_has_none(tmp_path: Path, users: Path) -> None:
    with pytest.raises(NoUid) as refused:
        accounts(tmp_path, users).of(ADA, ClusterUid("c1", None))
    assert refused.value.code is ReasonCode.NO_UID


def test_account_to_which_the_operator_mapped_a_user_comes_first(
    tmp_path: Path, users: Path
) -> None:
    made = accounts(tmp_path, users, accounts={"ada": "daemon"})
    for uid in (UID, ClusterUid("c1", 0), ClusterUid("c1", None)):
        account = made.of(ADA, uid)
        assert account is not None
        assert account.name == "daemon"


def test_home_that_the_machine_gave_is_handed_over(tmp_path: Path, users: Path) -> None:
    former = of(accounts(tmp_path, users), ADA)
    home = Path(former.home)
    (home / "results").mkdir()
    (home / "results" / "best").write_text("1")
    (home / "link").symlink_to("/etc/passwd")
    (home / "of-root").write_text("2")
    for name in ("results", "results/best", "link"):
        os.chown(home / name, former.uid, former.gid, follow_symlinks=False)
    account = accounts(tmp_path, users).of(ADA, UID)
    assert account is not None
    assert account.uid == 400_004
    now = Path(account.home)
    assert sorted(each.name for each in now.iterdir()) == ["link", "of-root", "results"]
    owners = {each.name: each.lstat().st_uid for each in (now, *now.rglob("*"))}
    assert owners == {
        "home": 400_004,
        "results": 400_004,
        "best": 400_004,
        "link": 400_004,
        "of-root": 0,
    }
    assert Path("/etc/passwd").stat().st_uid == 0
    assert uid_of(accounts(tmp_path, users), BOB, None) == 300_001, "nobody gets the former uid"
    assert uid_of(accounts(tmp_path, users), ADA) == 400_004


def test_handing_over_goes_on_after_a_crash(
    tmp_path: Path, users: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    former = of(accounts(tmp_path, users), ADA)
    for number in range(3):
        file = Path(former.home) / str(number)
        file.touch()
        os.chown(file, former.uid, former.gid)
    change, left = os.chown, [2]

    def fails(*arguments: object, **options: object) -> None:
        if not left[0]:
            raise OSError(5, "Input/output error")
        left[0] -= 1
        change(*arguments, **options)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(os, "chown", fails)
        with pytest.raises(NoAccount, match="Input/output error"):
            accounts(tmp_path, users).of(ADA, UID)
    account = of_cluster(tmp_path, users)
    assert {each.stat().st_uid for each in Path(account).rglob("*")} == {400_004}
    assert len(list(Path(account).iterdir())) == 3


def of_cluster(directory: Path, users: Path) -> str:
    """The home of ada."""
    account = accounts(directory, users).of(ADA, UID)
    assert account is not None
    return account.home


def test_second_home_of_a_user_stands_beside_the_first(tmp_path: Path, users: Path) -> None:
    for cluster in ("/one", "/two"):
        former = of(accounts(tmp_path, users, cluster=cluster), ADA)
        (Path(former.home) / "of").write_text(cluster)
        os.chown(Path(former.home) / "of", former.uid, former.gid)
    for cluster in ("/one", "/two"):
        uid_of(accounts(tmp_path, users, cluster=cluster), ADA)
    place = users / "400004"
    found = {each.parent.name: each.read_text() for each in place.glob("home*/of")}
    assert found == {"home": "/one", "home-300001": "/two"}
    assert {each.stat().st_uid for each in place.glob("home*/of")} == {400_004}


@contextmanager
def a_kernel(uid: int) -> Iterator[None]:
    with subprocess.Popen(["sleep", "60"], user=uid, group=uid) as process:
        try:
            yield
        finally:
            process.kill()


def test_kernels_run_on_under_the_uid_of_the_machine_until_none_of_it_is_left(
    tmp_path: Path, users: Path
) -> None:
    former = of(accounts(tmp_path, users), ADA)
    made = accounts(tmp_path, users)
    with a_kernel(former.uid):
        for _ in range(2):
            assert made.of(ADA, UID) == former
        assert refusal(made, BOB), "the uid of the cluster is the user's already"
    assert uid_of(made, ADA) == 400_004
    assert not Path(former.home).exists()


def test_uid_that_the_machine_gave_is_kept_where_the_cluster_lets_the_user_have_it(
    tmp_path: Path, users: Path
) -> None:
    former = of(accounts(tmp_path, users), ADA)
    of(accounts(tmp_path, users, cluster="/other"), BOB)
    given = given_by_machine(users, "here")
    assert given == {"default/ada": 300_000}
    with a_kernel(former.uid):
        account = accounts(tmp_path, users).of(ADA, ClusterUid("c1", 300_000))
    assert account == former
    assert uid_of(accounts(tmp_path, users, cluster="/x"), ADA, ClusterUid("c1", 300_000))
    assert given_by_machine(users, "here") == {}, "it is the cluster's now"


def test_directories_that_are_nested_too_deeply_cost_their_user_alone_the_account(
    tmp_path: Path, users: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of(accounts(tmp_path, users), ADA)

    def too_deep(*_: object, **__: object) -> None:
        raise RecursionError

    monkeypatch.setattr("os.fwalk", too_deep)
    with pytest.raises(NoAccount, match="nested too deeply"):
        accounts(tmp_path, users).of(ADA, UID)
    assert uid_of(accounts(tmp_path, users), BOB, ClusterUid("c1", 400_005)) == 400_005
