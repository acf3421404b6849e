"""A user's kernel looks around on its machine, and finds nothing of other users."""

import os

import pytest
from tests.attacks.target import Target

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root runs kernels as their owners")

LOOK = r"""
import os, re, signal, sys
home, users = sys.argv[1:3]
found = []
def attempt(what, act):
    try:
        act()
    except OSError:
        return
    found.append(what)
for name in ("", "/muster.db", "/client.json", "/join-token", "/agents"):
    attempt(home + name, lambda: os.open(home + name, os.O_RDONLY))
attempt(users, lambda: os.listdir(users))
me = os.getuid()
for entry in filter(str.isdigit, os.listdir("/proc")):
    try:
        status = open(f"/proc/{entry}/status").read()
        command = open(f"/proc/{entry}/cmdline").read()
    except OSError:
        continue
    if int(re.search(r"^Uid:\s+(\d+)", status, re.M)[1]) == me:
        if "\0--spawner\0" not in command:
            continue
    else:
        attempt(f"signal {entry} {command}", lambda: os.kill(int(entry), signal.SIGTERM))
    for name in ("environ", "mem", "fd/0"):
        attempt(f"{name} of {entry} {command}", lambda: open(f"/proc/{entry}/{name}", "rb").read(1))
for entry in range(200000, 200010):
    for name in ("", "/owner", "/home"):
        if entry != me:
            path = f"{users}/{entry}{name}"
            attempt(path, lambda: os.open(path, os.O_RDONLY))
print(me, found)
"""


def printed(target: Target, user: str, command: list[str]) -> str:
    with target.client(user) as client:
        job = client.submit(command=command)
        done = client.wait(job.id)
        text = b"".join(client.logs(job.id)).decode()
    assert done.state == "SUCCEEDED", text
    return text


def test_kernel_of_a_user_reaches_neither_the_cluster_nor_another_user(target: Target) -> None:
    home, users = str(target.cluster.home.path), str(target.cluster.users_directory)

    said = printed(target, "mallory", ["python3", "-I", "-S", "-c", LOOK, home, users])

    uid, found = said.strip().split(" ", 1)
    assert int(uid) != 0
    assert found == "[]"


def test_users_have_uids_of_their_own(target: Target) -> None:
    uids = {user: printed(target, user, ["id", "-u"]).strip() for user in ("mallory", "ada")}

    assert len({"0", *uids.values()}) == 3


def test_user_that_kills_all_that_it_may_harms_nobody_else(target: Target) -> None:
    with target.client("mallory") as mallory:
        # Not at once: an attempt whose start was never told is made again, a little later.
        script = "sleep 0.5; kill -9 -1"
        job = mallory.submit(command=["sh", "-c", script], max_retries_preemption=0)
        mallory.wait(job.id)
        again = mallory.submit(command=["true"])
        assert mallory.wait(again.id).state == "SUCCEEDED"


HOARD = r"""
import os, resource, socket, time
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
held = []
for port in range(20000, 30000):
    if len(held) > hard - 20 and os.fork():
        time.sleep(600)
    held = held if len(held) <= hard - 20 else []
    one = socket.socket(socket.AF_UNIX)
    one.bind(f"\0muster-port-{port}")
    held.append(one)
print("hoarded", flush=True)
time.sleep(600)
"""


def test_kernel_that_binds_whatever_name_it_likes_takes_nobodys_ports(target: Target) -> None:
    with target.client("mallory") as mallory, target.client("ada") as ada:
        hoard = mallory.submit(command=["python3", "-I", "-S", "-c", HOARD])
        assert next(iter(mallory.logs(hoard.id, follow=True))) == b"hoarded\n"

        job = ada.submit(command=["sh", "-c", "test -n $MUSTER_PORTS"], ports=2)

        assert ada.wait(job.id, timeout_s=20).state == "SUCCEEDED"
        mallory.cancel(hoard.id)
