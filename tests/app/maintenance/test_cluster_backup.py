"""A whole cluster in a file, and out of it again."""

import io
import json
import stat
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.app.maintenance.test_backup import names

from muster.app.home import Home, Settings
from muster.app.maintenance.archive import BadArchive, back_up_cluster, unpacked
from muster.app.maintenance.restoring import TokenChoice
from muster.app.maintenance.reviving import revive
from muster.app.maintenance.sealing import BadSeal, Cost, SealedFile, SealingFile
from muster.app.own_authority import own_certificate
from muster.cli.program import app
from muster.core.errors import Conflict, MusterError
from muster.store.database import sqlite_url

PASSPHRASE = "horse battery staple tree"
CHEAP = Cost(n=2**4)
KEPT = TokenChoice.KEPT


@pytest.fixture
def cluster(home: Home) -> Home:
    """A home with a state, and with all files that make it a cluster."""
    own_certificate(home, [])
    home.write_settings(Settings(port=7700))
    home.write_client("https://localhost:7700", "an admin's token", home.authority)
    home.join_token_file.write_text("a join token\n")
    (home.path / "notices.yaml").write_text("kind: notices\n")
    (home.path / "controller.log").write_text("not of the cluster")
    return home


@pytest.fixture
def fresh(tmp_path: Path) -> Home:
    return Home(tmp_path / "fresh")


def made(cluster: Home, file: Path, passphrase: str | None = None) -> Path:
    back_up_cluster(cluster, sqlite_url(cluster.database), file, passphrase, CHEAP)
    return file


def contents(home: Home) -> dict[str, bytes]:
    return {
        path.name: path.read_bytes()
        for path in home.path.iterdir()
        if path.is_file() and not path.name.startswith(("muster.db", "controller.log", "lock"))
    }


@pytest.mark.parametrize("passphrase", [None, PASSPHRASE])
def test_cluster_comes_back_whole_on_a_fresh_home(
    passphrase: str | None, cluster: Home, fresh: Home, tmp_path: Path
) -> None:
    file = made(cluster, tmp_path / "backup", passphrase)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    secrets = [(cluster.path / "ca.key").read_bytes(), b"an admin's token", b"muster-backup.json"]
    assert all((secret in file.read_bytes()) is (passphrase is None) for secret in secrets)
    revived = revive(fresh, None, file, passphrase, choice=KEPT)
    assert contents(fresh) == contents(cluster)
    assert names(fresh.database) == names(cluster.database)
    assert all(
        stat.S_IMODE((fresh.path / name).stat().st_mode) == 0o600 for name in revived.written
    )
    assert revived.kept_aside == ()
    assert not list(fresh.path.glob(".*")), "nothing is left of the way there"
    assert not list(cluster.path.glob(".*"))


def test_key_that_is_there_is_kept_aside_and_never_overwritten(
    cluster: Home, fresh: Home, tmp_path: Path
) -> None:
    fresh.create()
    own_certificate(fresh, [])
    key = (fresh.path / "ca.key").read_bytes()
    revived = revive(fresh, None, made(cluster, tmp_path / "backup"), choice=KEPT)
    kept = [path for path in revived.kept_aside if path.name.startswith("ca.key.before-")]
    assert [path.read_bytes() for path in kept] == [key]
    assert (fresh.path / "ca.key").read_bytes() == (cluster.path / "ca.key").read_bytes()
    again = revive(fresh, None, tmp_path / "backup", choice=KEPT)
    assert (again.written, again.kept_aside) == ((), ())


def test_files_alone_are_put_back_where_the_state_is_there_still(
    cluster: Home, fresh: Home, tmp_path: Path
) -> None:
    revived = revive(fresh, None, made(cluster, tmp_path / "backup"), files_only=True)
    assert (revived.state, fresh.database.exists()) == (None, False)
    assert contents(fresh) == contents(cluster)


def test_state_of_a_server_goes_only_where_it_was_said(
    cluster: Home, fresh: Home, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "state.db"
    cluster.database.rename(elsewhere)
    cluster.write_settings(Settings(database=str(elsewhere)))
    back_up_cluster(cluster, sqlite_url(elsewhere), tmp_path / "backup")
    with pytest.raises(MusterError, match="say with --database where it is to be now"):
        revive(fresh, None, tmp_path / "backup", choice=KEPT)
    revive(fresh, str(tmp_path / "other.db"), tmp_path / "backup", choice=KEPT)
    assert fresh.settings().database == sqlite_url(tmp_path / "other.db")
    assert names(tmp_path / "other.db") == names(elsewhere)


def test_cluster_that_runs_is_not_replaced(cluster: Home, fresh: Home, tmp_path: Path) -> None:
    file = made(cluster, tmp_path / "backup")
    fresh.create()
    with fresh.locked(), pytest.raises(Conflict, match="muster down"):
        revive(fresh, str(tmp_path / "other.db"), file, choice=KEPT)
    assert not (tmp_path / "other.db").exists()
    assert not fresh.authority.exists()


def cut(content: bytes) -> bytes:
    return content[: len(content) // 2]


def cut_at_a_chunk(content: bytes) -> bytes:
    head = content.index(b"}\n") + 2
    return content[: head + 64 * 1024 + 16]


def flipped(content: bytes) -> bytes:
    return content[:-40] + bytes([content[-40] ^ 1]) + content[-39:]


def other_cost(content: bytes) -> bytes:
    return content.replace(b'"n": 16', b'"n": 32', 1)


def too_costly(content: bytes) -> bytes:
    return content.replace(b'"n": 16', b'"n": 1073741824', 1)


def longer(content: bytes) -> bytes:
    return content + b"more"


@pytest.mark.parametrize("spoil", [cut, cut_at_a_chunk, flipped, other_cost, too_costly, longer])
def test_sealed_backup_that_was_changed_is_refused_whole(
    spoil: Callable[[bytes], bytes], cluster: Home, fresh: Home, tmp_path: Path
) -> None:
    (cluster.path / "notices.yaml").write_text("#" * 200_000)
    file = made(cluster, tmp_path / "backup", PASSPHRASE)
    file.write_bytes(spoil(file.read_bytes()))
    with pytest.raises(BadSeal):
        revive(fresh, None, file, PASSPHRASE, choice=KEPT)
    assert contents(fresh) == {}
    assert not fresh.database.exists()


def test_wrong_passphrase_is_told(cluster: Home, fresh: Home, tmp_path: Path) -> None:
    file = made(cluster, tmp_path / "backup", PASSPHRASE)
    with pytest.raises(BadSeal, match="the passphrase is wrong, or the file is damaged"):
        revive(fresh, None, file, PASSPHRASE + "x", choice=KEPT)


@pytest.mark.parametrize("size", [0, 1, 65535, 65536, 65537, 131072, 200_000])
def test_sealed_content_comes_back_whatever_its_length(size: int) -> None:
    content, file = bytes(range(256)) * (size // 256) + b"x" * (size % 256), io.BytesIO()
    writer = SealingFile(file, PASSPHRASE, CHEAP)
    writer.write(content[:100])
    writer.write(content[100:])
    writer.finish()
    file.seek(0)
    sealed = SealedFile(file, PASSPHRASE)
    assert sealed.read(10) + sealed.read() == content
    assert sealed.read() == b""


def packed(file: Path, *members: tarfile.TarInfo, content: bytes = b"content") -> Path:
    """An archive with these members behind a manifest."""
    said = {"muster_backup": 1, "made_at": 1.0, "database": "", "members": {}}
    text = json.dumps(said).encode()
    manifest = tarfile.TarInfo("muster-backup.json")
    manifest.size = len(text)
    with tarfile.open(file, "w") as archive:
        archive.addfile(manifest, io.BytesIO(text))
        for member in members:
            member.size = len(content) if member.isreg() else 0
            archive.addfile(member, io.BytesIO(content))
    return file


def linked(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member


@pytest.mark.parametrize(
    "member",
    [
        tarfile.TarInfo("../escaped"),
        tarfile.TarInfo("/tmp/escaped"),
        tarfile.TarInfo("home/../../escaped"),
        tarfile.TarInfo("home/lock"),
        tarfile.TarInfo("home/agents/agent-1/credential.json"),
        linked("home/ca.key", "/etc/passwd"),
        linked("home/ca.pem", "/etc/passwd", tarfile.LNKTYPE),
        linked("state.gz", "", tarfile.DIRTYPE),
        linked("state.gz", "", tarfile.FIFOTYPE),
    ],
)
def test_member_that_no_backup_has_is_refused_and_leaves_nothing(
    member: tarfile.TarInfo, fresh: Home, tmp_path: Path
) -> None:
    fresh.create()
    file = packed(tmp_path / "backup", member)
    with pytest.raises(BadArchive, match="which no backup has"), unpacked(file, fresh, None):
        pass
    assert [path.name for path in tmp_path.iterdir() if path != fresh.path] == ["backup"]
    assert contents(fresh) == {}


def test_member_that_is_too_long_or_not_in_the_list_is_refused(fresh: Home, tmp_path: Path) -> None:
    fresh.create()
    long = packed(tmp_path / "long", tarfile.TarInfo("home/ca.pem"), content=bytes(5 * 2**20))
    with pytest.raises(BadArchive, match="of 5,242,880 bytes"), unpacked(long, fresh, None):
        pass
    unlisted = packed(tmp_path / "unlisted", tarfile.TarInfo("home/ca.pem"))
    missing = pytest.raises(BadArchive, match=r"home/ca\.pem is missing, or not as it was")
    with missing, unpacked(unlisted, fresh, None):
        pass
    twice = [tarfile.TarInfo("home/ca.pem"), tarfile.TarInfo("home/ca.pem")]
    file = packed(tmp_path / "twice", *twice)
    with pytest.raises(BadArchive, match=r"has home/ca\.pem twice"), unpacked(file, fresh, None):
        pass


def test_damaged_plain_backup_is_refused(cluster: Home, fresh: Home, tmp_path: Path) -> None:
    file = made(cluster, tmp_path / "backup")
    content = file.read_bytes()
    key = (cluster.path / "ca.key").read_bytes()
    file.write_bytes(content.replace(key, key[:-40] + b"x" + key[-39:]))
    with pytest.raises(BadArchive, match=r"home/ca\.key is missing, or not as it was"):
        revive(fresh, None, file, choice=KEPT)
    file.write_bytes(cut(content))
    with pytest.raises(BadArchive, match="is damaged"):
        revive(fresh, None, file, choice=KEPT)
    assert contents(fresh) == {}


def muster(home: Home, *words: str, stdin: str = "") -> Result:
    return CliRunner().invoke(app, ["db", *words, "--home", str(home.path)], input=stdin)


def test_commands_say_what_they_did_and_ask_for_the_passphrase(
    cluster: Home, fresh: Home, tmp_path: Path
) -> None:
    file, secret = str(tmp_path / "backup"), tmp_path / "secret"
    plain = muster(cluster, "backup", "--all", str(tmp_path / "plain"))
    assert plain.exit_code == 0, plain.output
    assert "ca.pem, ca.key, server.pem, server.key, join-token, client.json" in plain.stdout
    assert "warning: whoever reads this file has the keys and tokens" in plain.stderr
    asked = muster(cluster, "backup", "--all", "--encrypt", file)
    assert "there is no terminal: name a file with --passphrase-file" in asked.stderr
    secret.write_text("short\n")
    short = muster(cluster, "backup", "--all", "--passphrase-file", str(secret), file)
    assert "the passphrase has 5 characters: 12 or more are needed" in short.stderr
    assert muster(cluster, "backup", "--encrypt", file).exit_code == 2
    secret.write_text(PASSPHRASE + "\n")
    done = muster(cluster, "backup", "--all", "--passphrase-file", str(secret), file)
    assert (done.exit_code, done.stderr) == (0, ""), done.output
    assert "a passphrase is needed" in muster(fresh, "restore", file, "--keep-tokens").stderr
    words = ("restore", file, "--keep-tokens", "--passphrase-file", "-")
    back = muster(fresh, *words, stdin=PASSPHRASE + "\n")
    assert back.exit_code == 0, back.output
    assert "restored 158 rows of " in back.stdout
    assert "wrote ca.pem, ca.key, server.pem, server.key, join-token" in back.stdout
    assert PASSPHRASE not in back.output
    assert contents(fresh) == contents(cluster)


def test_file_that_cannot_be_in_a_backup_is_named(cluster: Home, tmp_path: Path) -> None:
    (cluster.path / "traffic.yaml").write_bytes(bytes(5 * 2**20))
    with pytest.raises(MusterError, match=r"traffic\.yaml has more than 4 MiB"):
        made(cluster, tmp_path / "backup")
    assert not list(tmp_path.glob("*backup*"))
