"""The process that sends, with real receivers on this machine."""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.control.notice.receiver import Receiver, receiving

from muster.control.notice.sending import Fate

ATTEMPT_S = 6


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with receiving() as server:
        yield server


def sent(urls: Mapping[str, str], **settings: Any) -> dict[str, Any]:
    """The outcomes of notices to these URLs, all sent at a time."""
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


def test_channel_that_answers_without_end_ends_its_attempt_alone(receiver: Receiver) -> None:
    outcomes = sent(
        {"flood": f"json://{receiver.host}/flood", "other": f"json://{receiver.host}/other"},
    )
    assert outcomes["other"] == {"fate": Fate.TAKEN}
    assert outcomes["flood"]["fate"] in (Fate.REFUSED, Fate.TIMED_OUT, Fate.UNREACHABLE)


def test_service_that_prints_tells_no_fate() -> None:
    fate = json.dumps({"key": "other", "fate": Fate.TAKEN})
    program = f"""
import os, subprocess, sys
from muster.control.notice.addresses import Reach
from muster.control.notice.sending import Fate, Sender, SendingSettings

def carry_out(errand):
    os.write(1, {fate!r}.encode() + b"\\n")
    subprocess.run(["echo", {fate!r}])
    return {{"fate": Fate.REFUSED}}

Sender(SendingSettings(5, frozenset(), Reach()), carry_out).run(0)
"""
    done = subprocess.run(
        [sys.executable, "-P", "-c", program],
        input=b'{"key": "own"}\n',
        stdout=subprocess.PIPE,
        timeout=60,
        check=True,
    )
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        {"key": "own", "fate": Fate.REFUSED}
    ]


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
