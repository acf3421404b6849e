"""The files of the page "Files of other systems, translated" run as they stand, with stubs of the
programs that they name."""

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from tests.core.test_page_examples import ROOT, documents
from tests.e2e import stub_torch
from tests.e2e.cluster import client_of, free_ports
from tests.patience import until

from muster.app import local
from muster.app.home import Home
from muster.app.local import UpOptions, down, up
from muster.client import Client

PAGE = ROOT / "docs" / "translated.md"
TIMEOUT_S = 120.0
SERVER = """
import http.server, sys, time, urllib.request

class Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        time.sleep({slow} if self.path.startswith("/v1/") else 0)
        status, body = 200, {body}
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass

at = ("127.0.0.1", int(sys.argv[{port}]))
http.server.ThreadingHTTPServer(at, Answers).serve_forever()
"""
PYTHON = f"#!{sys.executable}"
PROGRAMS = {
    # In one write: sixteen processes write at a time.
    "train.py": """
import os

os.write(1, "rank {RANK} of {WORLD_SIZE}\\n".format(**os.environ).encode())
""",
    "align.sh": '#!/bin/sh\necho "aligned $1"\n[ "$1" != 8 ]\n',
    "convert.sh": '#!/bin/sh\necho "converted $1"\n[ "$1" != "two words" ]\n',
    "inputs.txt": "a.wav\nb.wav\ntwo words\nd.wav\n$(touch oops)\n",
    "couchdb.sh": PYTHON + SERVER.format(slow=0, body="b'{}'", port=1),
    "web.sh": PYTHON
    + SERVER.format(
        slow=0,
        body="b'the database says ' + urllib.request.urlopen(sys.argv[2] + '/_up').read()",
        port=1,
    ),
}


class Shell:
    """A person with a directory that has the page's files, and the programs that these name."""

    def __init__(self, home: Home, directory: Path) -> None:
        self._directory = directory
        stubs = stub_torch.install(directory / "stubs", sys.executable)
        vllm = stubs / "vllm"
        vllm.write_text(PYTHON + SERVER.format(slow=0.5, body="b'{}'", port=-1))
        vllm.chmod(0o755)
        for name, text in {**PROGRAMS, **files()}.items():
            (directory / name).write_text(text)
            (directory / name).chmod(0o755)
        kept = {name: text for name, text in os.environ.items() if name[:7] != "MUSTER_"}
        self._environment = {
            **kept,
            "MUSTER_HOME": str(home.path),
            "COLUMNS": "200",
            "PATH": f"{stubs}:{os.environ['PATH']}",
            "PYTHONPATH": f"{stubs}:{os.environ.get('PYTHONPATH', '')}",
        }

    def types(self, line: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        """A line with ``muster`` in front, which ends with this code."""
        muster = Path(sys.executable).with_name("muster")
        done = subprocess.run(
            ["/bin/sh", "-c", f"{muster} {line}"],
            cwd=self._directory,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
        assert done.returncode == code, (line, done.stdout, done.stderr)
        return done


def files() -> Mapping[str, str]:
    """Our files on the page, by the names in their first lines."""
    found = {}
    for place, text in documents():
        named = re.match(r"# ([\w-]+\.yaml)\n", text)
        if place.startswith(f"{PAGE.name}:") and named is not None:
            found[named[1]] = text
    assert set(found) == {
        "train.yaml",
        "align.yaml",
        "llm.yaml",
        "db.yaml",
        "web.yaml",
        "convert.yaml",
    }
    return found


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """A cluster of two machines with a proxy."""
    home = Home(tmp_path_factory.mktemp("translated") / "home")
    home.create()
    with pytest.MonkeyPatch.context() as patched:
        ports = free_ports(2)
        patched.setattr(local, "DEFAULT_PORT", ports[0])
        patched.setattr(local, "PROXY_PORT", ports[1])
        try:
            up(UpOptions(home.path, agents=2, cpus="64", memory="400GiB", gpus="8xH100"))
            yield home
        finally:
            down(home.path)


@pytest.fixture(scope="module")
def shell(home: Home, tmp_path_factory: pytest.TempPathFactory) -> Shell:
    return Shell(home, tmp_path_factory.mktemp("work"))


@pytest.fixture
def client(home: Home) -> Iterator[Client]:
    with client_of(home) as client:
        yield client


def test_training_is_one_of_sixteen_processes_on_two_machines(shell: Shell, client: Client) -> None:
    shell.types("submit --wait train.yaml")
    said = shell.types("logs train").stdout
    assert sorted(re.findall(r"rank (\d+) of 16", said), key=int) == [*map(str, range(16))]
    tasks = client.tasks("train").items
    assert len({task.attempts[-1].agent for task in tasks}) == 2


def test_array_runs_every_fourth_index_and_what_failed_again(shell: Shell) -> None:
    done = shell.types("submit --wait align.yaml", code=1)
    assert "216 of 216 tasks ended: 215 succeeded, 1 failed" in done.stderr
    assert shell.types("logs align/860").stdout == "aligned 860\n"
    shell.types("logs align --save out")
    again = shell.types("retry align --failed --wait", code=1)
    assert again.stderr.startswith("align-retry-1 (")


def test_model_answers_those_with_a_token_and_its_replicas_follow_load(
    shell: Shell, client: Client, home: Home
) -> None:
    shell.types("deploy llm.yaml")
    url = shell.types("open llm").stdout.strip() + "v1/models"

    def ask(sent: str) -> int:
        try:
            with urlopen(Request(url, headers={"Authorization": f"Bearer {sent}"})) as answer:
                return int(answer.status)
        except HTTPError as error:
            return error.code

    assert ask("none") == 401
    token = home.client()["token"]
    assert ask(token) == 200
    over = threading.Event()

    def go_on_asking() -> None:
        while not over.is_set():
            ask(token)

    people = [threading.Thread(target=go_on_asking) for _ in range(16)]
    for each in people:
        each.start()
    try:
        until(lambda: client.deployments.show("llm").healthy >= 2, TIMEOUT_S)
    finally:
        over.set()
        for each in people:
            each.join()
    shell.types("cancel llm")


def test_service_starts_once_its_database_is_healthy_and_reaches_it(
    shell: Shell, client: Client
) -> None:
    refused = shell.types("deploy web.yaml", code=1).stderr
    assert "'db': there is no such deployment" in refused
    shell.types("deploy --detach db.yaml")
    shell.types("deploy --detach web.yaml")
    until(lambda: client.deployments.show("web").healthy == 1, TIMEOUT_S)
    web, db = (client.deployments.show(name).routes[0] for name in ("web", "db"))
    assert web.created_at >= db.status_changed_at
    with urlopen(shell.types("open web").stdout.strip()) as answer:
        assert answer.read() == b"the database says {}"
    shell.types("cancel web")
    shell.types("cancel db")


def test_each_line_is_a_task(shell: Shell) -> None:
    done = shell.types("submit --wait convert.yaml", code=1)
    assert "5 of 5 tasks ended: 4 succeeded, 1 failed" in done.stderr
    assert shell.types("logs convert").stdout.splitlines() == [
        "0 | converted a.wav",
        "1 | converted b.wav",
        "2 | converted two words",
        "3 | converted d.wav",
        "4 | converted $(touch oops)",
    ]
