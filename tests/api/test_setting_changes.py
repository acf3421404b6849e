"""Changes of settings: history and the list of changes tell who made them, and what is new."""

from collections.abc import Iterator

import pytest
from tests.api.served import ADA, LARGE, ServedCluster

from muster.client import Client, Forbidden
from muster.core.errors import NotFound
from muster.core.owner import Role

ROOT = "default/root"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedCluster]:
    cluster = ServedCluster(tmp_path_factory.mktemp("changes"), {"a1": LARGE})
    cluster.start()
    yield cluster
    cluster.stop()


def told(client: Client, ref: str) -> list[tuple[str, str]]:
    """The changes of a setting, each with its sentence, oldest first."""
    return [
        (entry.happened, "; ".join(reason.sentence for reason in entry.reasons))
        for entry in client.history(ref).items
    ]


def test_history_of_a_quota_tells_each_change_with_its_author_and_both_values(
    cluster: ServedCluster, root: Client
) -> None:
    quota = {"level": "user", "name": "default/default/ada"}
    root.put_quota({**quota, "limits": {"gpu": 8, "memory": "64GiB"}})
    root.put_quota({**quota, "limits": {"gpu": 10}, "weight": 2.0})
    root.put_quota({**quota, "limits": {"gpu": 10}, "weight": 2.0})  # nothing changes
    root.remove_quota("user", "default/default/ada")
    assert told(root, "default/default/ada") == [
        ("added", "by root: limits.memory: 64GiB; limits.gpu: 8"),
        ("changed", "by root: limits.memory: 64GiB → none; limits.gpu: 8 → 10; weight: 2"),
        ("removed", "by root: limits.gpu: 10 → none; weight: 2 → none"),
    ]


def test_history_of_each_kind_of_setting_tells_its_changes(
    cluster: ServedCluster, root: Client
) -> None:
    root.put_group({"name": "gpu"})
    root.put_group({"name": "gpu", "preemption": {"minimum_lease": "5m"}, "queue": "strict"})
    root.add_domain("lab")
    root.add_project("vision", "lab")
    root.set_hosts("vision", ["a.example.org"], "lab")
    root.add_project("speech", "lab")
    root.add_user("grace", ["vision"], "lab")
    root.set_projects("grace", ["vision", "speech"], "lab")
    assert told(root, "gpu") == [
        ("added", "by root"),
        ("changed", "by root: queue: strict; preemption.minimum_lease: 300"),
    ]
    assert told(root, "domain:lab") == [("added", "by root")]
    assert told(root, "lab/vision") == [
        ("added", "by root"),
        ("changed", 'by root: hosts: ["a.example.org"]'),
    ]
    assert told(root, "user:lab/grace") == [
        ("added", 'by root: projects: ["vision"]'),
        ("changed", 'by root: projects: ["vision"] → ["vision", "speech"]'),
    ]
    root.remove_user("grace", "lab")
    assert told(root, "lab/grace")[-1] == (
        "removed",
        'by root: projects: ["vision", "speech"] → none',
    ), "also after its removal"


def test_history_of_tokens_tells_no_secret(cluster: ServedCluster, root: Client) -> None:
    root.add_user("ada")
    made = root.create_token("laptop", user=ADA.user, expires="30d")
    root.revoke_token(made.token.id)
    invitation = root.create_join_token("a9")
    root.revoke_join_token("a9")
    added, removed = told(root, made.token.id)
    assert (added[0], removed[0]) == ("added", "removed")
    assert "by root: name: laptop; user: default/ada; role: user; expires: " in added[1]
    assert [each[0] for each in told(root, f"join-token:{invitation.token.id}")] == [
        "added",
        "removed",
    ]
    everything = str([root.changes(limit=1000), root.history(made.token.id)])
    for secret in (made.secret, invitation.secret):
        assert secret not in everything


def test_list_of_changes_tells_all_kinds_newest_first_and_pages(
    cluster: ServedCluster, root: Client
) -> None:
    with cluster.client(ADA, Role.ADMIN) as other:
        other.put_quota({"level": "domain", "name": "default", "sessions": 9})
    root.add_domain("hall")
    newest, before = root.changes(limit=2)
    assert (newest.kind, newest.name, newest.what, newest.by) == ("domain", "hall", "added", ROOT)
    assert str(newest.token).startswith("tok-")
    assert (before.kind, before.name, before.by) == ("quota", "default", "default/ada")
    (difference,) = before.changes
    assert (difference.key, difference.before, difference.after) == ("sessions", None, "9")
    assert [each.name for each in root.changes(by="ada")] == ["default"]
    assert {each.kind for each in root.changes(kind="domain")} == {"domain"}
    seqs = [each.seq for each in root.changes(limit=1000)]
    assert seqs == sorted(seqs, reverse=True)


def test_list_of_changes_has_those_of_pools_without_secrets(
    cluster: ServedCluster, root: Client
) -> None:
    pool = {
        "name": "spare",
        "group": "default",
        "provider": "script",
        "machine": {"cpu": 8, "memory": "16GiB"},
    }
    settings = {"command": ["/bin/true"], "environment": {"KEY": "hush-1"}}
    root.apply_pool({**pool, "max_slices": 3, "settings": settings}, check=False)
    settings = {"command": ["/bin/true"], "environment": {"KEY": "hush-2"}}
    root.apply_pool({**pool, "max_slices": 5, "settings": settings}, check=False)
    root.pause_pool("spare")
    paused, changed, made = root.changes(kind="pool")
    assert [(each.name, each.what) for each in (made, changed, paused)] == [
        ("spare", "made"),
        ("spare", "changed"),
        ("spare", "paused"),
    ]
    assert {(each.key, each.before, each.after) for each in changed.changes} == {
        ("max_slices", "3", "5"),
        ("settings.environment.KEY", "…", "…"),
    }
    assert "hush" not in str([root.changes(kind="pool"), root.history("spare")])
    with cluster.client(ADA) as ada:
        (entry,) = (each for each in ada.history("spare").items if "→ 5" in str(each))
        (reason,) = entry.reasons
        assert reason.sentence.startswith("an administrator changed it: settings.")


def test_people_see_changes_of_their_own_settings_without_the_names_of_others(
    cluster: ServedCluster, root: Client
) -> None:
    root.put_quota({"level": "user", "name": "default/*/*", "sessions": 7})
    root.put_quota({"level": "user", "name": "default/default/bob", "sessions": 3})
    root.add_user("bob")
    theirs = root.create_token("theirs", user="bob")
    root.put_group({"name": "shared", "projects": ["default/secret"]})
    with cluster.client(ADA) as ada:
        assert told(ada, "quota:default/*/*") == [("added", "by an administrator: sessions: 7")]
        assert told(ada, "shared") == [("added", "by an administrator: projects: …")]
        mine = ada.create_token("mine").token
        assert told(ada, mine.id)[0][1].startswith("by ada: name: mine")
        for ref in (
            "user:default/bob",
            "quota:default/default/bob",
            f"token:{theirs.token.id}",
            "theirs",
            "domain:lab",
        ):
            with pytest.raises(NotFound):
                ada.history(ref)
        with pytest.raises(Forbidden):
            ada.changes()
