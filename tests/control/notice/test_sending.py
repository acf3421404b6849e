"""The process that sends, with real receivers on this machine."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from muster.control.notice.sending import Fate

ATTEMPT_S = 6
REFUSED = {"/missing": 404, "/redirect": 302, "/busy": 503}


class Receiver(ThreadingHTTPServer):
    """Takes what is posted; ``hang`` lets go of those who hang at the end."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.got: list[tuple[str, Any]] = []
        self.over = threading.Event()

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append((self.path, json.loads(body)))
        path = self.path.partition("?")[0]
        if path == "/drip":
            while not self.server.over.wait(0.5):
                self.wfile.write(b"H")
            return
        self.send_response(REFUSED.get(path, 200))
        self.send_header("Location", "http://169.254.169.254/latest/meta-data")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    server = Receiver()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.over.set()
    server.shutdown()
    thread.join()
    server.server_close()


def sent(urls: Mapping[str, str], **settings: Any) -> dict[str, Any]:
    """What becomes of notices to these URLs, all at a time."""
    told = {
        "attempt_s": ATTEMPT_S,
        "schemes": ["json", "http", "https", "slack", "workflows"],
        "loopback": True,
        "private": False,
        **settings,
    }
    errands = [
        {"key": key, "url": url, "title": "over", "body": "it ended", "tone": "failure"}
        for key, url in urls.items()
    ]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "muster.control.notice.sending"],
        input="".join(json.dumps(line) + "\n" for line in (told, *errands)).encode(),
        stdout=subprocess.PIPE,
        cwd="/",
        env={"HOME": "/nonexistent", "PATH": "/usr/bin"},
        timeout=60,
        check=True,
    )
    outcomes = [json.loads(line) for line in done.stdout.splitlines()]
    assert sorted(each["key"] for each in outcomes) == sorted(urls)
    return {each.pop("key"): each for each in outcomes}


def test_channels_get_the_notice_and_each_outcome_is_told(receiver: Receiver) -> None:
    host = receiver.host
    outcomes = sent(
        {
            "apprise": f"json://{host}/apprise",
            "web": f"http://{host}/web?room=7",
            "missing": f"json://{host}/missing",
            "busy": f"json://{host}/busy",
            "nobody": "json://127.0.0.1:9/",
            "no name": "json://hooks.invalid/",
            "no such url": "slack://x",
        }
    )
    assert outcomes == {
        "apprise": {"fate": Fate.TAKEN},
        "web": {"fate": Fate.TAKEN},
        "missing": {"fate": Fate.REFUSED, "status": 404},
        "busy": {"fate": Fate.REFUSED, "status": 503},
        "nobody": {"fate": Fate.UNREACHABLE},
        "no name": {"fate": Fate.UNREACHABLE},
        "no such url": {"fate": Fate.NOT_UNDERSTOOD},
    }
    got = dict(receiver.got)
    assert (
        got["/apprise"] | {"title": "over", "message": "it ended", "type": "failure"}
        == (got["/apprise"])
    )


def test_attempt_connects_to_no_address_that_is_not_allowed(receiver: Receiver) -> None:
    host = receiver.host
    before = len(receiver.got)
    outcomes = sent(
        {
            "metadata": "json://169.254.169.254/",
            "as a number": "json://2852039166/",
            "private": "json://10.1.2.3/",
            "redirect": f"json://{host}/redirect?redirect=yes",
            "no redirect": f"json://{host}/redirect",
        }
    )
    assert outcomes.pop("no redirect") == {"fate": Fate.REFUSED, "status": 302}
    assert {each["fate"] for each in outcomes.values()} == {Fate.FORBIDDEN}
    assert len(receiver.got) == before + 2  # the redirects

    own = {"address": f"json://{host}/own", "name": f"json://localhost:{receiver.server_port}/own"}
    outcomes = sent(own, loopback=False)
    assert {each["fate"] for each in outcomes.values()} == {Fate.FORBIDDEN}
    assert len(receiver.got) == before + 2


def test_attempt_neither_reads_files_nor_uses_services_of_the_machine(
    receiver: Receiver, tmp_path: Path
) -> None:
    template = tmp_path / "secret.json"
    template.write_text("{}")
    outcomes = sent(
        {
            "file": f"workflows://{receiver.host}/workflow/signature/?template={template}",
            "syslog": "syslog://",
        }
    )
    assert {each["fate"] for each in outcomes.values()} == {Fate.FORBIDDEN}


def test_attempt_that_hangs_is_killed_and_holds_up_no_other(receiver: Receiver) -> None:
    outcomes = sent(
        {
            "drips": f"json://{receiver.host}/drip?rto=600",
            "other": f"json://{receiver.host}/other",
        }
    )
    assert list(outcomes.items()) == [
        ("other", {"fate": Fate.TAKEN}),
        ("drips", {"fate": Fate.TIMED_OUT}),
    ]
