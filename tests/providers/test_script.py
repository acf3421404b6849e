"""The provider of an operator's executable: real executables, good ones and all kinds of bad
ones."""

import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.providers.conformance import TOKEN, Conformance
from tests.providers.scripts import MACHINE, ORDER, ScriptSite, Writer, refusal, spec, writing

from muster.autoscaling.standing import CreateOutcome
from muster.core.errors import InvalidSpec
from muster.providers.found import problems_of, provider_class
from muster.providers.provider import Machine, MachineState, Scope
from muster.providers.script import answers, call
from muster.providers.script.answers import Nonsense, document_in, refusal_in
from muster.providers.script.executable import LONGEST_S, Script


@pytest.fixture
def site(tmp_path: Path) -> ScriptSite:
    return ScriptSite(tmp_path)


class TestScript(Conformance):
    pass


@pytest.fixture
def write(tmp_path: Path) -> Iterator[Writer]:
    with writing(tmp_path) as write:
        yield write


def test_provider_is_found_by_its_name() -> None:
    assert provider_class("script") is Script
    assert problems_of(spec("some-program")) == []


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({}, "settings.command"),
        ({"command": []}, "settings.command"),
        ({"command": [""]}, "settings.command"),
        ({"command": "make it"}, "settings.command"),
        ({"command": ["./here"]}, "settings.command"),
        ({"command": ["x"] * 101}, "settings.command"),
        ({"command": ["x"], "timeout": 61}, "settings.timeout"),
        ({"command": ["x"], "timeout": 0}, "settings.timeout"),
        ({"command": ["x"], "environment": {"a b": "c"}}, "settings.environment.a b"),
        ({"command": ["x"], "comand": ["y"]}, "settings.comand"),
    ],
)
def test_wrong_setting_is_told_by_its_name(settings: dict[str, object], field: str) -> None:
    wrong = spec().model_copy(update={"settings": settings})
    assert [problem.field for problem in problems_of(wrong)] == [field]
    with pytest.raises(InvalidSpec):
        Script(wrong, Scope("c-1", "one", Path("/nowhere")))


def test_limit_of_a_time_is_told_with_its_unit() -> None:
    (long,) = problems_of(spec("x", timeout=61))
    assert long.expected == "expected at most 55s"
    (short,) = problems_of(spec("x", timeout="500ms"))
    assert short.expected == "expected at least 1s"


def test_request_says_all_that_is_needed_and_the_token_is_on_standard_input_alone(
    write: Writer, tmp_path: Path
) -> None:
    provider = write(
        f'cat >{tmp_path}/request; echo "$@" >{tmp_path}/words; env >{tmp_path}/environment; '
        f"pwd >{tmp_path}/place; echo '{{\"machines\": [{MACHINE}]}}'"
    )

    (machine,) = provider.create(ORDER)

    assert machine == Machine("i-1", "sl-1", "sl-1-0", MachineState.RUNNING)
    request = json.loads((tmp_path / "request").read_text())
    (asked,) = request.pop("machines")
    assert asked["name"] == "sl-1-0"
    assert TOKEN in asked["start"]
    subprocess.run(["sh", "-n"], input=asked["start"].encode(), check=True, timeout=20)
    assert request == {
        "version": 1,
        "call": "create",
        "cluster": "c-1",
        "pool": "one",
        "slice": "sl-1",
        "machine": {
            "cpu": 2.0,
            "memory_bytes": 64 * 2**20,
            "disk_bytes": 2**30,
            "gpus": 0,
            "gpu_model": "",
            "gpu_memory_bytes": 0,
            "extra": {},
        },
        "preemptible": False,
        "attributes": {"zone": "a"},
        "group": "default",
        "controller": "127.0.0.1:1",
        "token": TOKEN,
        "authority": None,
    }
    assert (tmp_path / "words").read_text() == "create\n"
    assert (tmp_path / "place").read_text().strip() == str(tmp_path / "own")
    assert TOKEN not in (tmp_path / "environment").read_text()


def test_executable_gets_few_of_the_controllers_variables(
    write: Writer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MUSTER_DATABASE", "postgresql://me:secret@there/muster")
    provider = write(f"env >{tmp_path}/environment", environment={"ZONE": "a b"})
    provider.check()
    text = (tmp_path / "environment").read_text()
    assert "ZONE=a b\n" in text
    assert "secret" not in text


def test_command_may_be_a_name_with_arguments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "provide"
    program.write_text(f'#!/bin/sh\necho "$@" >{tmp_path}/words\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    Script(spec("provide", "--zone", "a b"), Scope("c-1", "one", tmp_path)).check()
    assert (tmp_path / "words").read_text() == "--zone a b check\n"


# Failures that the executable tells


@pytest.mark.parametrize("outcome", sorted(answers.OUTCOMES))
@pytest.mark.parametrize("code", [0, 3])
def test_error_of_the_executable_is_told_in_its_words(
    write: Writer, outcome: str, code: int
) -> None:
    told = json.dumps({"error": {"outcome": outcome, "told": "no h100\nin zone a"}})
    refused = refusal(write(f"printf %s {shlex.quote(told)}; exit {code}").create, ORDER)
    assert (refused.outcome, refused.told) == (CreateOutcome(outcome), "no h100 in zone a")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("echo first >&2; echo 'quota of zone a' >&2; exit 7", "exit code 7: quota of zone a"),
        ("exit 1", "exit code 1 and says nothing"),
        ("kill -9 $$", "signal 9 and says nothing"),
        ("printf 'a\\033[31mred\\n' >&2; exit 1", "exit code 1: a\N{REPLACEMENT CHARACTER}[31mred"),
        ("head -c 9000 /dev/zero | tr '\\0' x >&2; exit 1", "exit code 1: xxxx"),
        ("echo '{\"gone\": true}'; echo but >&2; exit 1", "exit code 1: but"),
    ],
)
def test_exit_code_is_told_with_the_last_line_of_errors(
    write: Writer, line: str, told: str
) -> None:
    refused = refusal(write(line).delete, "sl-1")
    assert refused.outcome is CreateOutcome.UNKNOWN
    assert refused.told.startswith("`provider delete`: it ends with ")
    assert told in refused.told


def test_executable_that_tells_the_token_does_not_spread_it(write: Writer) -> None:
    for line in (
        f"echo 'token={TOKEN}' >&2; exit 1",
        f"echo {TOKEN}{TOKEN}",
        f"head -c 190 /dev/zero | tr '\\0' x >&2; echo {TOKEN} >&2; exit 1",
        f'echo \'{{"error": {{"outcome": "quota", "told": "{TOKEN}"}}}}\'',
    ):
        refused = refusal(write(line).create, ORDER)
        assert TOKEN[:6] not in refused.told


# Nonsense


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ("", "it answers nothing"),
        ("hello", "its answer is no JSON document; it begins 'hello"),
        ("[]", "no JSON object"),
        ("[" * 100_000, "no JSON document"),
        ("1" * 100_000, "no JSON document"),
        ("{}", "no list of machines"),
        ('{"machines": []}', "other machines than were ordered: none"),
        (f'{{"machines": [{MACHINE}, {MACHINE}]}}', "two machines 'i-1'"),
        (f'{{"machines": [{MACHINE}], "more": 1}}', "a key 'more' that means nothing"),
        ('{"machines": [1]}', "machines.0: expected an object"),
        ('{"machines": [{}]}', "machines.0.id: missing"),
        (
            f'{{"machines": [{MACHINE.replace("running", "happy")}]}}',
            "machines.0.state is 'happy': expected 'coming', 'running', 'stopped' or 'leaving'",
        ),
        (f'{{"machines": [{MACHINE.replace("sl-1-0", "other")}]}}', "other machines"),
        (
            '{"machines": [{"id": "i", "name": "sl-1-0", "state": "coming", "slice": "sl-2"}]}',
            "a machine of slice 'sl-2', not sl-1",
        ),
        (
            '{"machines": [{"id": "\\ud800", "name": "sl-1-0", "state": "coming"}]}',
            "expected text that is valid Unicode",
        ),
        (
            '{"machines": [{"id": "i", "name": "sl-1-0", "state": "coming", "leaves_at": NaN}]}',
            "machines.0.leaves_at",
        ),
        ('{"error": "no"}', "error: expected an object"),
        (
            '{"error": {"outcome": "created", "told": "not yet"}}',
            "its outcome 'created' is none of bad request, credentials, quota",
        ),
        ('{"error": {"outcome": "too bad", "told": "rain"}}', "it says: rain"),
    ],
)
def test_answer_that_is_none_is_told_and_nothing_is_promised(
    write: Writer, tmp_path: Path, answer: str, told: str
) -> None:
    (tmp_path / "answer").write_text(answer)
    refused = refusal(write(f"cat {tmp_path}/answer").create, ORDER)
    assert refused.outcome is CreateOutcome.UNKNOWN
    assert told in refused.told


def test_list_needs_slices_and_says_whether_it_is_complete(write: Writer, tmp_path: Path) -> None:
    whole = {"id": "i-1", "name": "a", "slice": "sl-1", "state": "stopped", "leaves_at": 5}
    (tmp_path / "answer").write_text(json.dumps({"machines": [whole], "complete": False}))
    provider = write(f"cat {tmp_path}/answer")
    listing = provider.list()
    machine = Machine("i-1", "sl-1", "a", MachineState.STOPPED, leaves_at=5.0)
    assert (listing.machines, listing.complete) == ((machine,), False)

    del whole["slice"]
    (tmp_path / "answer").write_text(json.dumps({"machines": [whole]}))
    assert "machines.0.slice: missing" in refusal(provider.list).told


def test_list_of_the_largest_pool_is_taken(write: Writer, tmp_path: Path) -> None:
    machines = [
        {"id": f"i-{n:040}", "name": f"m-{n}", "slice": f"sl-{n}", "state": "running"}
        for n in range(10_000)
    ]
    (tmp_path / "answer").write_text(json.dumps({"machines": machines}))
    assert len(write(f"cat {tmp_path}/answer").list().machines) == 10_000


def test_answer_to_delete_has_to_say_whether_it_is_gone(write: Writer) -> None:
    assert write("echo '{\"gone\": false}'").delete("sl-1") is False
    for answer in ("{}", '{"gone": 1}', '{"gone": "yes"}'):
        refused = refusal(write(f"echo '{answer}'").delete, "sl-1")
        assert "gone: expected true or false" in refused.told


def test_check_and_reboot_may_be_silent(write: Writer) -> None:
    provider = write("cat >/dev/null")
    provider.check()
    provider.reboot(Machine("i-1", "sl-1", "a", MachineState.RUNNING), hard=True)
    assert "answers nothing" in refusal(provider.list).told


@given(st.binary(max_size=300))
def test_no_output_is_believed_unless_it_is_an_answer(output: bytes) -> None:
    for read in (
        lambda told: answers.created(told, ORDER),
        answers.listed,
        answers.gone,
        answers.nothing,
        refusal_in,
    ):
        with suppress(Nonsense):
            read(document_in(output))


def test_page_tells_the_limits_and_its_examples_are_answers() -> None:
    page = (Path(__file__).parents[2] / "docs" / "providers.md").read_text()
    page = page.partition("## script")[2].partition("\n## ")[0]
    assert f"{call.MAX_ANSWER_BYTES >> 20} MiB" in page
    assert f"{call.MAX_ERRORS_BYTES >> 20} MiB" in page
    assert f"at most {LONGEST_S:g} s" in page
    good, bad = re.findall(r"```json\n([^`]*)```", page)
    assert answers.listed(json.loads(good)).complete
    refused = refusal_in(json.loads(bad))
    assert refused is not None
    assert refused.outcome is CreateOutcome.STOCK_OUT
