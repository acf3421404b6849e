"""The part of the provider that runs on a host: claims, start and end of an agent.

Its text is sent with each request, and Python there reads it from standard input: nothing needs to
be installed for it, and none of it can be of another version. So it has the standard library only,
and keeps to Python 3.9.

A host is claimed by a file, which appears whole or not at all and names cluster, pool, slice and
machine; it goes last, when nothing else is left. Whoever changes anything holds a lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CLAIM = "claim.json"
OWNER = ("cluster", "pool", "slice")
LOCK_S = 8.0
WORK_S = 3600.0
COMMAND_S = 5.0
POLL_S = 0.05
TOLD = 600
LEAST_PYTHON = (3, 11)

Json = dict[str, Any]


class NotDone(Exception):
    """The answer that something was not done.

    Args:
        kind: ``busy``, ``permission``, ``wrong`` (the pool's settings do not suit the host) or
            ``failed``.
        told: why.
    """

    def __init__(self, kind: str, told: str) -> None:
        super().__init__(told)
        self.kind = kind


def main() -> None:
    """Carry out the request on standard input; two lines of answer begin with its mark: one at
    once, and one with what became of it."""
    os.umask(0o077)
    request = json.loads(sys.stdin.read())
    signal.alarm(request["limit_s"])
    say(request, {"begun": True})
    try:
        answer = OPERATIONS[request["operation"]](Path(request["directory"]), request)
    except NotDone as refused:
        answer = {"refused": refused.kind, "told": str(refused)}
    except PermissionError as error:
        answer = {"refused": "permission", "told": str(error)}
    except OSError as error:
        answer = {"refused": "failed", "told": str(error)}
    say(request, answer)


def say(request: Json, answer: Json) -> None:
    """Print an answer; it begins a line, whatever was printed before."""
    sys.stdout.write(f"\n{request['mark']}{json.dumps(answer)}\n")
    sys.stdout.flush()


# Operations


def look(base: Path, request: Json) -> Json:
    """The claim of this host and the state of its agent; ``claim`` is None where it is free."""
    claim = claim_of(base)
    if claim is None:
        return {"claim": None, "state": "free", "detail": ""}
    state, detail = state_of(base)
    return {"claim": claim, "state": state, "detail": detail}


def check(base: Path, request: Json) -> Json:
    """Whether the host could become an agent; changes nothing."""
    require(request)
    present = next(each for each in (base, *base.parents) if each.exists())
    if not present.is_dir() or not os.access(present, os.W_OK | os.X_OK):
        raise PermissionError(f"{present} cannot be written by user {os.geteuid()}")
    return look(base, request)


def claim(base: Path, request: Json) -> Json:
    """Claim this host, unless another slice has."""
    require(request)
    wanted = request["claim"]
    with locked(base):
        present = claim_of(base)
        if present is None:
            wanted = dict(wanted, machine=machine(), key=os.urandom(8).hex())
            base.mkdir(mode=0o700, exist_ok=True)
            write(base / "claim.new", json.dumps(wanted))
            os.link(base / "claim.new", base / CLAIM)
            (base / "claim.new").unlink()
            sync(base)
        elif not is_of(present, wanted) or present["name"] != wanted["name"]:
            raise NotDone("busy", f"is claimed by {described(present)}")
    return {}


def start(base: Path, request: Json) -> Json:
    """Start the agent of the slice that has claimed this host, if it was not started before."""
    with locked(base):
        present = claim_of(base)
        if not is_of(present, request["claim"]):
            raise NotDone("busy", f"is claimed by {described(present)}")
        state, _ = state_of(base)
        if state in ("claimed", "failed"):
            write(base / "stop.sh", request["stop"])
            begin(base, "start", request["start"], request["wait_s"])
    state, detail = state_of(base)
    if state in ("failed", "leaving"):
        raise NotDone("failed", detail or "is being given back")
    return {"state": state, "detail": detail}


def end(base: Path, request: Json) -> Json:
    """End the agent of the slice with all its work, remove its files, and give the host back;
    ``gone`` tells whether all that is done."""
    # Without the lock, for which a directory would be made.
    if not is_of(claim_of(base), request["claim"]):
        return {"gone": True}
    with locked(base):
        if not is_of(claim_of(base), request["claim"]):
            return {"gone": True}
        kill(base, "start")
        script = base / "stop.sh"
        if script.exists():
            if not is_alive(base, "stop"):
                begin(base, "stop", script.read_text(), 0.0)
            code = wait(base, "stop", request["wait_s"])
            if code is None:
                return {"gone": False}
            if code:
                raise NotDone("failed", f"its agent does not end: {tail(base, 'stop')}")
        remove(base)
        if request["shutdown"]:
            command(request["shutdown"])
    return {"gone": True}


def reboot(base: Path, request: Json) -> Json:
    """Have a host of the slice boot anew."""
    present = claim_of(base)
    if not is_of(present, request["claim"]):
        raise NotDone("busy", f"is claimed by {described(present)}")
    command(request["reboot"])
    return {}


def log(base: Path, request: Json) -> Json:
    """The last words of the agent of a slice that has claimed this host."""
    if not is_of(claim_of(base), request["claim"]):
        return {"log": ""}
    if not (said := tail(base / "agent", "agent")) and shutil.which("journalctl"):
        words = ["journalctl", "-u", request["unit"], "-n", "20", "-o", "cat", "--no-pager"]
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=5)
        said = " ".join(done.stdout.decode(errors="replace").split())[-TOLD:]
    return {"log": said or tail(base, "start")}


OPERATIONS = {
    "look": look,
    "check": check,
    "claim": claim,
    "start": start,
    "end": end,
    "reboot": reboot,
    "log": log,
}


# The claim


def claim_of(base: Path) -> Json | None:
    """The claim of this host; None if it is free."""
    try:
        present = json.loads((base / CLAIM).read_text())
        owner = present["machine"]
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        raise NotDone("wrong", f"{base / CLAIM} is no claim: look at it, and remove it") from None
    if owner != machine():
        raise NotDone("wrong", f"{base} is on a disk that it shares with another machine: {owner}")
    return present  # type: ignore[no-any-return] # as written above


def is_of(present: Json | None, wanted: Json) -> bool:
    """Whether a claim is of the wanted slice."""
    return present is not None and all(present.get(key) == wanted[key] for key in OWNER)


def described(present: Json | None) -> str:
    if present is None:
        return "nobody"
    return f"slice {present.get('slice')} of pool {present.get('pool')} ({present.get('cluster')})"


def machine() -> str:
    """The mark that tells this machine from others with which it may share a disk."""
    with contextlib.suppress(OSError):
        return Path("/etc/machine-id").read_text().strip() or os.uname().nodename
    return os.uname().nodename


@contextlib.contextmanager
def locked(base: Path) -> Iterator[None]:
    """A lock for all that change something here. It is on the directory above, because that of the
    claim comes and goes."""
    base.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    descriptor = os.open(base.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    deadline_s = time.monotonic() + LOCK_S
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline_s:
                    raise NotDone("failed", "another call works on it") from None
                time.sleep(POLL_S)
        yield
    finally:
        os.close(descriptor)


def remove(base: Path) -> None:
    """Remove everything of the agent, the claim last."""
    for each in base.iterdir():
        if each.name == CLAIM:
            continue
        if each.is_dir() and not each.is_symlink():
            shutil.rmtree(each)
        else:
            each.unlink()
    (base / CLAIM).unlink()
    base.rmdir()


# Work that outlives the connection


def state_of(base: Path) -> tuple[str, str]:
    """The state of the agent on a claimed host, and what is to say of it."""
    if (base / "stop.process").exists():
        return "leaving", ""
    if is_alive(base, "start"):
        return "coming", "its agent is being installed"
    code = code_of(base, "start")
    if code is None:
        if (base / "start.process").exists():
            return "failed", "the start of its agent was interrupted"
        return "claimed", ""
    if code:
        return "failed", f"its agent cannot be started: {tail(base, 'start')}"
    if not is_locked(base / "agent" / "agent.lock"):
        return "running", f"its agent does not run; see {base / 'agent' / 'agent.log'}"
    return "running", tail(base, "start")


def begin(base: Path, name: str, script: str, wait_s: float) -> None:
    """Have a shell run a script in the background, and wait for its end for a while."""
    for suffix in ("code", "process", "log"):
        with contextlib.suppress(FileNotFoundError):
            (base / f"{name}.{suffix}").unlink()
    child = os.fork()
    if not child:
        try:
            run_script(base, name, script)
        finally:
            os._exit(0)
    deadline_s = time.monotonic() + max(wait_s, COMMAND_S)
    while not (base / f"{name}.process").exists() and time.monotonic() < deadline_s:
        time.sleep(POLL_S / 10)
    wait(base, name, wait_s)


def run_script(base: Path, name: str, script: str) -> None:
    """Run a script in a session of its own, without the files of this process, and note how it
    ended."""
    signal.alarm(0)
    os.setsid()
    os.chdir("/")
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(null, descriptor)
    os.closerange(3, 1024)
    note = {"process": os.getpid(), "born": born(os.getpid())}
    write(base / f"{name}.process", json.dumps(note))
    with (base / f"{name}.log").open("wb") as log:
        shell = subprocess.Popen(
            ["/bin/sh"], stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT
        )
        try:
            shell.communicate(script.encode(), timeout=WORK_S)
        except subprocess.TimeoutExpired:
            write(base / f"{name}.code", "124")
            os.killpg(0, signal.SIGKILL)
    write(base / f"{name}.code", str(shell.returncode))


def wait(base: Path, name: str, wait_s: float) -> int | None:
    """The exit code of a script; None if it still runs after so long."""
    deadline_s = time.monotonic() + wait_s
    while True:
        alive = is_alive(base, name)
        code = code_of(base, name)
        if code is None and not alive:
            return -1
        if code is not None or time.monotonic() >= deadline_s:
            return code
        time.sleep(POLL_S)


def kill(base: Path, name: str) -> None:
    """End a script with its children, if it runs."""
    deadline_s = time.monotonic() + COMMAND_S
    while is_alive(base, name):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(noted(base, name)["process"], signal.SIGKILL)
        if time.monotonic() > deadline_s:
            raise NotDone("failed", f"process {noted(base, name)['process']} does not end")
        time.sleep(POLL_S)


def is_alive(base: Path, name: str) -> bool:
    note = noted(base, name)
    return bool(note) and note["born"] is not None and born(note["process"]) == note["born"]


def noted(base: Path, name: str) -> Json:
    try:
        note: Json = json.loads((base / f"{name}.process").read_text())
    except FileNotFoundError:
        return {}
    return note


def born(process: int) -> str | None:
    """The boot and the moment in which a process began; None if it has ended."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return None if fields[0] in "ZX" else f"{boot} {fields[19]}"


def code_of(base: Path, name: str) -> int | None:
    try:
        return int((base / f"{name}.code").read_text())
    except FileNotFoundError:
        return None


def tail(base: Path, name: str) -> str:
    """The last words of a script."""
    try:
        with (base / f"{name}.log").open("rb") as log:
            log.seek(max(os.fstat(log.fileno()).st_size - TOLD, 0))
            return " ".join(log.read().decode(errors="replace").split())
    except FileNotFoundError:
        return ""


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock on a file."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


# The machine


def require(request: Json) -> None:
    """Refuse a host that has no ``muster``, or could not install it."""
    program = request["program"]
    if program is not None:
        if shutil.which(program) is None:
            raise NotDone("wrong", f"has no command {program}")
    elif sys.version_info < LEAST_PYTHON:
        raise NotDone("wrong", f"has Python {platform.python_version()}: Muster needs 3.11")
    elif importlib.util.find_spec("ensurepip") is None:
        raise NotDone("wrong", "has a Python that makes no environments: install python3-venv")


def command(words: list[str]) -> None:
    """Run a command of the pool's settings; one that takes long goes on without being watched."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
        try:
            code = process.wait(COMMAND_S)
        except subprocess.TimeoutExpired:
            return
        output.seek(0)
        said = " ".join(output.read(TOLD).decode(errors="replace").split())
    if code:
        raise NotDone("failed", f"{words[0]} ended with {code}: {said}")


def write(path: Path, text: str) -> None:
    """Write a file, for its owner alone, whole or not at all."""
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    with fresh.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)


def sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


if __name__ == "__main__":
    main()
