"""The settings of the provider ``ssh``, which are checked without asking any host."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.core.specs.pool import MachineShape, PoolSpec
from muster.providers.found import problems_of
from muster.providers.ssh.host_list import Host, expand, parse_host
from muster.providers.ssh.settings import settings_of

GOOD: dict[str, Any] = {"hosts": ["gpu[01-03]"], "known_hosts": "/etc/muster/known_hosts"}


def pool(settings: dict[str, Any], **more: Any) -> PoolSpec:
    shape = MachineShape(cpu=1000, memory=2**30)
    return PoolSpec(
        name="p", provider="ssh", settings=settings, machine=shape, max_slices=1, **more
    )


def addresses(*entries: str) -> list[str]:
    return [str(host) for host in expand(entries)]


def test_ranges_name_each_host() -> None:
    assert addresses("gpu[08-10]", "a[1,3-4]b[0-1]", "h") == [
        "gpu08", "gpu09", "gpu10", "a1b0", "a1b1", "a3b0", "a3b1", "a4b0", "a4b1", "h"
    ]  # fmt: skip


def test_host_may_have_a_user_and_a_port() -> None:
    host = parse_host("ann@10.0.0.7:2222")
    assert (host.user, host.address, host.port) == ("ann", "10.0.0.7", 2222)
    assert parse_host("[fe80::1]:22") == Host("fe80::1", 22)
    assert parse_host("fe80::1") == Host("fe80::1")
    assert addresses("ann@gpu[1-2]:22") == ["ann@gpu1:22", "ann@gpu2:22"]


@given(st.text(max_size=40))
def test_host_is_read_as_it_was_written_or_refused(text: str) -> None:
    try:
        host = parse_host(text)
    except ValueError:
        return
    assert str(parse_host(str(host))) == str(host)
    assert not host.address.startswith("-")
    assert not {*host.address} & {*" \t\n;$`'\"/@"}


@pytest.mark.parametrize(
    "entry",
    ["", "-oProxyCommand=x", "a b", "a;b", "a@b@c", "a:0", "a:65536", "a:x", "a:", "[1-2]:3:4",
     "gpu[2-1]", "gpu[a]", "gpu[1-99999]", "[::1", "x" * 300, "a..b", "@a", "gpu[1-2", "$(x)"],
)  # fmt: skip
def test_what_is_no_host_is_refused(entry: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        addresses(entry)


def test_good_settings_have_no_problems() -> None:
    assert problems_of(pool(GOOD)) == []
    settings = settings_of(pool(GOOD))
    assert settings.machines[0] == Host("gpu01", 22)
    assert [settings.id_of(host) for host in settings.machines] == ["gpu01", "gpu02", "gpu03"]
    lines = [
        "gpu* ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHVkqzsYrd2A5nbwNjwCSNCdMqCgV0mOBZZ1NhGlYPdH"
    ]
    assert problems_of(pool({"hosts": ["gpu01"], "host_keys": lines})) == []


@pytest.mark.parametrize(
    ("change", "field", "words"),
    [
        ({"host": ["a"]}, "settings.host", "did you mean hosts?"),
        ({"hosts": []}, "settings.hosts", "at least 1"),
        ({"hosts": "gpu01"}, "settings.hosts", "expected a list"),
        ({"hosts": ["gpu[01-03]", "gpu02"]}, "settings.hosts", "is there twice"),
        ({"hosts": ["A", "ann@a:22"]}, "settings.hosts", "is there twice"),
        ({"known_hosts": None}, "settings.known_hosts", "because it answers first"),
        ({"host_keys": ["a ssh-rsa x", "b"]}, "settings.host_keys", "expected lines"),
        ({"known_hosts": "known_hosts"}, "settings.known_hosts", "absolute path"),
        ({"directory": "~/muster"}, "settings.directory", "absolute path"),
        ({"directory": "/a/$(reboot)"}, "settings.directory", "absolute path"),
        ({"install": "--index-url=http://x"}, "settings.install", "no option"),
        ({"muster": "muster; reboot"}, "settings.muster", "expected letters"),
        ({"user": "-l root"}, "settings.user", "expected letters"),
        ({"port": 0}, "settings.port", "at least 1"),
        ({"sudo": "yes"}, "settings.sudo", "true or false"),
        ({"reboot_command": "reboot now"}, "settings.reboot_command", "expected a list"),
        ({"connect_timeout": 60}, "settings.connect_timeout", "at most 30"),
    ],
)
def test_wrong_settings_are_told_with_the_field(
    change: dict[str, Any], field: str, words: str
) -> None:
    settings = {key: value for key, value in (GOOD | change).items() if value is not None}
    problems = {problem.field: problem.expected for problem in problems_of(pool(settings))}
    assert field in problems
    assert words in problems[field]


def test_slice_of_more_machines_than_there_are_is_refused() -> None:
    (problem,) = problems_of(pool(GOOD, slice_size=4))
    assert problem.sentence() == (
        "settings.hosts is 3 hosts: expected at least slice_size, which is 4"
    )


def test_requirement_cannot_leave_its_quotes() -> None:
    settings = settings_of(pool(GOOD | {"install": "muster'; reboot; '"}))
    line = settings.preparation(Host("gpu01"))[2]
    assert line.endswith("""-- 'muster'"'"'; reboot; '"'"''""")
