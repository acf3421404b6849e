"""The provider of an operator's executable: real executables, good ones and all kinds of bad
ones."""

import json
import os
import re
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.patience import until
from tests.providers.conformance import SHAPE, TOKEN, Conformance, Site

from muster.autoscaling.standing import MAX_TOLD, CreateOutcome
from muster.core.errors import InvalidSpec
from muster.core.specs.pool import PoolSpec
from muster.providers.found import problems_of, provider_class
from muster.providers.provider import Machine, MachineState, ProviderError, Scope
from muster.providers.script import answers, call
from muster.providers.script.answers import Nonsense, document_in, refusal_in
from muster.providers.script.executable import LONGEST_S, Script

GOOD = Path(__file__).with_name("good_provider.py")


def spec(*command: str, **settings: object) -> PoolSpec:
    return PoolSpec.model_validate(
        {
            "name": "one",
            "provider": "script",
            "machine": SHAPE,
            "max_slices": 4,
            "settings": {"command": list(command), **settings},
        }
    )


class ScriptSite(Site):
    """The world of a good executable is a file."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._world = directory / "world.json"

    def provider(self, pool: str = "one", cluster: str = "c-1") -> Script:
        made = spec(sys.executable, "-I", "-S", str(GOOD), str(self._world))
        return Script(made, Scope(cluster, pool, self._directory / "own"))


@pytest.fixture
def site(tmp_path: Path) -> ScriptSite:
    return ScriptSite(tmp_path)


class TestScript(Conformance):
    pass


@pytest.fixture
def write(tmp_path: Path) -> Iterator[Callable[..., Script]]:
    """Makes the provider of an executable with this shell line; nothing of it runs afterwards."""
    tag = f"MUSTER_TEST={tmp_path}"

    def write(line: str, **settings: object) -> Script:
        program = tmp_path / "provider"
        program.write_text(f"#!/bin/sh\n{line}\n")
        program.chmod(0o755)
        variables = {"MUSTER_TEST": str(tmp_path)}
        made = spec(str(program), **{"environment": variables, "timeout": 20} | settings)
        return Script(made, Scope("c-1", "one", tmp_path / "own"))

    yield write
    until(lambda: not [pid for pid in psutil.pids() if tag in _environment(pid)])


def _environment(pid: int) -> list[str]:
    try:
        text = Path(f"/proc/{pid}/environ").read_text(errors="replace")
        return [] if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE else text.split("\0")
    except (OSError, psutil.NoSuchProcess):
        return []


def refusal(function: Callable[..., object], *given: object) -> ProviderError:
    with pytest.raises(ProviderError) as refused:
        function(*given)
    assert len(refused.value.told) <= MAX_TOLD
    assert refused.value.told.isprintable()
    return refused.value


ORDER = ScriptSite(Path("/")).order(machines=1)
MACHINE = '{"id": "i-1", "name": "sl-1-0", "state": "running"}'


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


def test_request_says_all_that_is_needed_and_the_token_is_on_standard_input_alone(
    write: Callable[..., Script], tmp_path: Path
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
    write: Callable[..., Script], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
    write: Callable[..., Script], outcome: str, code: int
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
    write: Callable[..., Script], line: str, told: str
) -> None:
    refused = refusal(write(line).delete, "sl-1")
    assert refused.outcome is CreateOutcome.UNKNOWN
    assert refused.told.startswith("`provider delete`: it ends with ")
    assert told in refused.told


def test_executable_that_tells_the_token_does_not_spread_it(write: Callable[..., Script]) -> None:
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
    write: Callable[..., Script], tmp_path: Path, answer: str, told: str
) -> None:
    (tmp_path / "answer").write_text(answer)
    refused = refusal(write(f"cat {tmp_path}/answer").create, ORDER)
    assert refused.outcome is CreateOutcome.UNKNOWN
    assert told in refused.told


def test_list_needs_slices_and_says_whether_it_is_complete(
    write: Callable[..., Script], tmp_path: Path
) -> None:
    whole = {"id": "i-1", "name": "a", "slice": "sl-1", "state": "stopped", "leaves_at": 5}
    (tmp_path / "answer").write_text(json.dumps({"machines": [whole], "complete": False}))
    provider = write(f"cat {tmp_path}/answer")
    listing = provider.list()
    machine = Machine("i-1", "sl-1", "a", MachineState.STOPPED, leaves_at=5.0)
    assert (listing.machines, listing.complete) == ((machine,), False)

    del whole["slice"]
    (tmp_path / "answer").write_text(json.dumps({"machines": [whole]}))
    assert "machines.0.slice: missing" in refusal(provider.list).told


def test_list_of_the_largest_pool_is_taken(write: Callable[..., Script], tmp_path: Path) -> None:
    machines = [
        {"id": f"i-{n:040}", "name": f"m-{n}", "slice": f"sl-{n}", "state": "running"}
        for n in range(10_000)
    ]
    (tmp_path / "answer").write_text(json.dumps({"machines": machines}))
    assert len(write(f"cat {tmp_path}/answer").list().machines) == 10_000


def test_answer_to_delete_has_to_say_whether_it_is_gone(write: Callable[..., Script]) -> None:
    assert write("echo '{\"gone\": false}'").delete("sl-1") is False
    for answer in ("{}", '{"gone": 1}', '{"gone": "yes"}'):
        refused = refusal(write(f"echo '{answer}'").delete, "sl-1")
        assert "gone: expected true or false" in refused.told


def test_check_and_reboot_may_be_silent(write: Callable[..., Script]) -> None:
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


# Executables that misbehave


def test_missing_executable_is_told_with_its_name(tmp_path: Path) -> None:
    scope = Scope("c-1", "one", tmp_path)
    refused = refusal(Script(spec("/no/such/program"), scope).check)
    assert refused.outcome is CreateOutcome.BAD_REQUEST
    assert "/no/such/program is not there" in refused.told
    refused = refusal(Script(spec("no-such-program"), scope).check)
    assert "no-such-program is not there on the controller's PATH" in refused.told


def test_file_that_cannot_be_executed_is_told(write: Callable[..., Script], tmp_path: Path) -> None:
    provider = write("exit 0")
    program = tmp_path / "provider"
    program.chmod(0o644)
    refused = refusal(provider.check)
    assert refused.outcome is CreateOutcome.BAD_REQUEST
    assert "is not executable: chmod +x it" in refused.told
    program.write_text("no interpreter is named here")
    program.chmod(0o755)
    refused = refusal(provider.check)
    assert refused.outcome is CreateOutcome.BAD_REQUEST
    assert "cannot be started: Exec format error" in refused.told


@pytest.mark.parametrize(
    "line",
    [
        "sleep 600",
        "trap '' TERM INT HUP; while :; do sleep 600; done",
        "trap '' TERM; (trap '' TERM; setsid sleep 600 & sleep 600) & sleep 600",
        "env -i setsid sh -c 'env -i setsid sleep 600 & sleep 600' & exec sleep 600",
        "sleep 600 </dev/null >/dev/null 2>&1 & kill -STOP $$",
    ],
)
def test_executable_that_hangs_is_ended_with_all_it_started(
    write: Callable[..., Script], line: str
) -> None:
    before = _sleepers()
    provider = write(f"echo working >&2; {line}", timeout=1)
    began_s = time.monotonic()
    refused = refusal(provider.create, ORDER)
    assert time.monotonic() - began_s < 10.0
    assert refused.outcome is CreateOutcome.UNKNOWN
    assert "did not end within 1 s; its last words: working" in refused.told
    until(lambda: _sleepers() <= before)


def test_executable_that_cleans_up_when_told_to_end_is_heard(write: Callable[..., Script]) -> None:
    line = "trap 'echo cleaned up >&2; exit 1' TERM; sleep 600 & wait"
    refused = refusal(write(line, timeout=1).delete, "sl-1")
    assert "exit code 1: cleaned up" in refused.told


@pytest.mark.parametrize(
    "left",
    ["sleep 600 &", "setsid sleep 600 &", "env -i setsid sleep 600 &", "nohup setsid sleep 600 &"],
)
def test_process_that_keeps_the_outputs_open_neither_delays_the_answer_nor_stays(
    write: Callable[..., Script], left: str
) -> None:
    before = _sleepers()
    began_s = time.monotonic()
    assert write(f"{left} echo '{{\"gone\": true}}'").delete("sl-1")
    assert time.monotonic() - began_s < 5.0
    until(lambda: _sleepers() <= before)


def _sleepers() -> set[int]:
    """Processes that sleep as those of these tests, whatever their environment."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes() == b"sleep\x00600\x00":
                found.add(int(path.parent.name))
        except OSError:
            continue
    return found


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("head -c 100000000 /dev/zero", "answers with more than 4 MiB"),
        ("yes", "answers with more than 4 MiB"),
        ("trap '' PIPE TERM; while :; do yes; done", "answers with more than 4 MiB"),
        ("echo begins >&2; yes error >&2", "writes more than 16 MiB of errors"),
        ("yes & yes >&2", "more than"),
    ],
)
def test_endless_output_ends_the_call_and_takes_little_memory(
    write: Callable[..., Script], line: str, told: str
) -> None:
    before = psutil.Process().memory_info().rss
    began_s = time.monotonic()
    refused = refusal(write(line).create, ORDER)
    assert time.monotonic() - began_s < 15.0
    assert refused.outcome is CreateOutcome.UNKNOWN
    assert told in refused.told
    assert psutil.Process().memory_info().rss - before < 64 << 20


def test_executable_that_does_not_read_a_large_request_is_no_problem(
    write: Callable[..., Script],
) -> None:
    order = replace(ORDER, attributes={f"a{n}": "x" * 255 for n in range(10_000)})
    line = f"exec <&-; echo '{{\"machines\": [{MACHINE}]}}'"
    assert len(write(line).create(order)) == 1


def test_call_ends_with_the_controller(write: Callable[..., Script], tmp_path: Path) -> None:
    write(f"echo >{tmp_path}/begun; sleep 600")
    code = (
        "from pathlib import Path; from tests.providers.test_script import spec; "
        "from muster.providers.script.executable import Script; "
        "from muster.providers.provider import Scope; "
        f"Script(spec({str(tmp_path / 'provider')!r}, environment={{'MUSTER_TEST': "
        f"{str(tmp_path)!r}}}), Scope('c-1', 'one', Path({str(tmp_path)!r}))).check()"
    )
    before = _sleepers()
    controller = subprocess.Popen(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(Path.cwd())}
    )
    until((tmp_path / "begun").exists)
    controller.kill()
    controller.wait()
    until(lambda: _sleepers() <= before)


def test_calls_on_several_threads_do_not_disturb_each_other(write: Callable[..., Script]) -> None:
    provider = write("sleep 0.3; echo '{\"gone\": true}'")
    gone: list[bool] = []
    threads = [
        threading.Thread(target=lambda: gone.append(provider.delete("sl-1"))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30.0)
    assert gone == [True] * 8


def test_call_leaves_no_descriptor_open(write: Callable[..., Script]) -> None:
    good = write("echo '{\"gone\": true}'")
    good.delete("sl-1")
    before = _open_files()
    good.delete("sl-1")
    refusal(write("sleep 600", timeout=1).check)
    refusal(Script(spec("/no/such/program"), good.scope).check)
    assert _open_files() == before


def _open_files() -> set[str]:
    return {path.name for path in Path("/proc/self/fd").iterdir()}


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
