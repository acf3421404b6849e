"""Services from command to report: the real agent and supervisor, and a planted check."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.agent.running import running
from tests.agent.test_faults import supervisor_pid
from tests.agent.test_kernels_life import K1, K2, agent, ended, output
from tests.wire.controller import controller, template

from muster.agent.supervisor.scratch import RESULT_FILE, take_result
from muster.core.health.service import MAX_RESULT_BYTES, Service, ServiceName, load
from muster.core.health.verdict import CheckResult
from muster.core.ids import KernelId
from muster.core.resources import DeviceShare
from muster.wire.messages import ReportKind, Start

FAULTY = """\
import json, os
gpus = os.environ["CUDA_VISIBLE_DEVICES"]
found = [{"what": f"GPU {gpu} is loose", "device": int(gpu)} for gpu in gpus.split(",") if gpu]
print(json.dumps({"version": 1, "verdict": "faulty" if found else "healthy", "findings": found}))
"""
NOT_TO_BE_RUN = ("/bin/sh", "-c", "exit 44")


def check(tmp_path: Path, name: str, program: str = FAULTY) -> dict[str, str]:
    """The settings of an agent with a check of this name."""
    path = tmp_path / f"{name}.py"
    path.write_text(program)
    return {name: f"{sys.executable} {path}"}


def start(service: Service, kernel: KernelId = K1, **fields: object) -> Start:
    shares = tuple(DeviceShare(index, 1000) for index in service.devices)
    made = template(*NOT_TO_BE_RUN, service=service, **fields)
    return Start(kernel, 1, made, {"MUSTER_KERNEL_INDEX": "0"}, shares)


async def test_a_check_leaves_its_verdict_with_its_end(directory: Path, tmp_path: Path) -> None:
    service = Service(ServiceName.CHECK, (1,), checks=("loose",))
    async with agent(directory, checks=check(tmp_path, "loose")) as made:
        made.command(start(service))
        assert (await made.report(K1, ReportKind.STARTED)).shares == (DeviceShare(1, 1000),)
        end = await ended(made, K1)

        assert end.exit_code == 0, (await output(made, K1)).decode()
        verdict = load(end.result)
        assert verdict.result is CheckResult.FAULTY
        (finding,) = verdict.findings
        assert (finding.device, finding.what) == (1, "GPU 1 is loose")
        assert b"faulty by loose" in await output(made, K1)


async def test_checks_that_only_observe_are_warnings(directory: Path, tmp_path: Path) -> None:
    service = Service(ServiceName.CHECK, (0, 1), checks=("loose",), observe=("loose",))
    async with agent(directory, checks=check(tmp_path, "loose")) as made:
        made.command(start(service))
        verdict = load((await ended(made, K1)).result)
        assert verdict.result is CheckResult.HEALTHY
        assert len(verdict.findings) == 2


async def test_a_gpu_that_the_agent_does_not_find_is_a_fault(
    directory: Path, tmp_path: Path
) -> None:
    async with agent(directory, checks=check(tmp_path, "loose")) as made:
        made.command(start(Service(ServiceName.CHECK, (7,), checks=("loose",))))
        verdict = load((await ended(made, K1)).result)
        assert verdict.result is CheckResult.FAULTY
        assert verdict.findings[0].device == 7


async def test_a_controller_can_name_a_service_and_no_program(
    directory: Path, tmp_path: Path
) -> None:
    """Neither command, environment nor files of the template reach a process."""
    told = tmp_path / "told"
    program = f"""\
import os
open({str(told)!r}, "w").write(repr(sorted(os.environ)) + repr(os.listdir(".")))
print('{{"version": 1, "verdict": "healthy"}}')
"""
    service = Service(ServiceName.CHECK, checks=("look",))
    evil = {"LD_PRELOAD": "/tmp/evil.so", "PATH": "/tmp"}
    async with agent(directory, checks=check(tmp_path, "look", program)) as made:
        made.command(start(service, env=evil, files={"evil": "x"}))
        end = await ended(made, K1)
        assert end.exit_code == 0
        assert load(end.result).result is CheckResult.HEALTHY
        assert "LD_PRELOAD" not in told.read_text()
        scratch = directory / "kernels" / f"{K1}.1"
        assert not (scratch / "evil").exists()


async def test_work_in_the_name_of_services_has_no_place_on_the_agent(directory: Path) -> None:
    """The owner of a service gives nobody the agent's own account where that is root."""
    async with agent(directory) as made:
        owner = "@muster/machines/health"
        made.command(
            start(Service(ServiceName.CHECK, checks=("disk",)), K1, owner=owner),
            Start(K2, 1, template("/bin/sh", "-c", "id -u", owner=owner), {}),
        )
        assert (await ended(made, K1)).exit_code == 0
        if os.geteuid() == 0:
            kinds = {report.kind for report in made.reports if report.kernel == K2}
            ran = ReportKind.ENDED in kinds
            assert not ran or (await output(made, K2)) != b"0\n"


async def test_a_result_outlives_agent_and_supervisor(directory: Path, tmp_path: Path) -> None:
    """The end is told while nobody hears it, and again by the next supervisor's journal."""
    checks = check(tmp_path, "loose")
    service = Service(ServiceName.CHECK, (0,), checks=("loose",))
    async with controller() as made:
        made.acknowledging = False
        async with running(made, directory, checks=checks):
            made.command(start(service))
            first = await ended(made, K1)
        os.kill(supervisor_pid(directory), signal.SIGKILL)
        made.acknowledging = True
        made.batches.clear()
        async with running(made, directory, checks=checks):
            again = await ended(made, K1)
        assert again.result == first.result
        assert load(again.result).result is CheckResult.FAULTY


@pytest.mark.parametrize(
    ("command", "exit_code", "told"),
    [
        ("/bin/true", 0, ""),
        ("/bin/false", 1, "/bin/false ended with exit code 1"),
        ("/no/such/program", 1, "/no/such/program could not be started"),
    ],
)
async def test_an_operators_command_reboots_the_machine(
    directory: Path, command: str, exit_code: int, told: str
) -> None:
    async with agent(directory, reboot_command=command) as made:
        made.command(start(Service(ServiceName.REBOOT, why="an Xid 79")))
        end = await ended(made, K1)
        assert end.exit_code == exit_code
        assert told in load(end.result).sentence()


async def test_a_machine_that_the_controller_is_on_is_not_rebooted(directory: Path) -> None:
    async with agent(directory) as made:
        made.command(start(Service(ServiceName.REBOOT)))
        end = await ended(made, K1)
        assert end.exit_code == 1
        assert "the controller is on this machine" in load(end.result).sentence()


async def test_a_reset_without_its_tool_says_so(
    directory: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    async with agent(directory) as made:
        made.command(start(Service(ServiceName.RESET, (1,))))
        end = await ended(made, K1)
        assert end.exit_code == 1
        assert "nvidia-smi is not installed" in load(end.result).sentence()


@pytest.mark.parametrize(
    ("line", "result"),
    [
        ('ln -s /etc/passwd "$0"', None),
        ('mkdir "$0"', None),
        ('mkfifo "$0"', None),
        ("true", None),
        ('printf hello > "$0"', "hello"),
        ("head -c 100000 /dev/zero | tr '\\0' x > \"$0\"", "x" * MAX_RESULT_BYTES),
        ("printf 'a\\377b' > \"$0\"", "a\N{REPLACEMENT CHARACTER}b"),
    ],
)
def test_only_the_beginning_of_a_plain_file_is_a_result(
    tmp_path: Path, line: str, result: str | None
) -> None:
    subprocess.run(["/bin/sh", "-c", line, RESULT_FILE], cwd=tmp_path, check=True)
    assert take_result(str(tmp_path), os.getuid(), MAX_RESULT_BYTES) == result
    assert (tmp_path / RESULT_FILE).exists() is (result is None and line != "true")


def test_file_of_another_user_is_no_result(tmp_path: Path) -> None:
    """A second name of a file that its reader may read, and its user may not."""
    (tmp_path / RESULT_FILE).write_text("not yours")
    assert take_result(str(tmp_path), os.getuid() + 1, MAX_RESULT_BYTES) is None
