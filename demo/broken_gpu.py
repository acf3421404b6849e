"""A GPU that is broken until its machine reboots, for clusters that have neither.

``dcgmi`` is a script here, which reports a faulty memory of the GPU of that machine, in the JSON of
DCGM 4; programs of jobs find the fault, too.
"""

import json
import os
import shutil
from pathlib import Path
from typing import Any

_BOOT = "boot.json"  # an agent keeps its machine's boot there (``muster.agent.boot``)
_BROKEN = "broken-"

_DCGMI = """#!/bin/sh
# The agent's directory is in the environment of whatever runs this.
agent=$(tr '\\0' '\\n' <"/proc/$PPID/environ" | sed -n 's/^MUSTER_SUPERVISOR=//p')
for boot in {planted}/broken-*; do
    if cmp -s "$boot" "$agent/boot.json"; then
        cat {planted}/faulty.json
        exit 205
    fi
done
cat {planted}/healthy.json
"""

_TASK = """#!/bin/sh
# Of a gang: fails on the broken GPU, and waits there for its sibling elsewhere.
for boot in {planted}/broken-*; do
    if cmp -s "$boot" "$MUSTER_SUPERVISOR/boot.json"; then
        sleep 1
        echo "CUDA error: uncorrectable ECC error encountered" >&2
        exit 1
    fi
done
if ls {planted}/broken-* >/dev/null 2>&1 && [ "$MUSTER_ATTEMPT" = 1 ]; then
    sleep 1000
fi
echo "rank $MUSTER_TASK_INDEX finished in attempt $MUSTER_ATTEMPT"
"""


class PlantedGpus:
    """Programs in a folder, and the machines whose GPU is broken.

    Attributes:
        task: the program of a gang that meets the broken GPU in its first attempt.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir()
        (directory / "healthy.json").write_text(json.dumps(_report("Pass")))
        fault = {
            "error_id": 97,
            "error_category": 10,
            "error_severity": 2,
            "warning": "Uncorrectable memory errors were found: run a field diagnostic",
        }
        (directory / "faulty.json").write_text(json.dumps(_report("Fail", fault)))
        self._program("dcgmi", _DCGMI)
        self.task = self._program("task", _TASK)

    @property
    def path(self) -> str:
        """The value of PATH with which ``dcgmi`` is this one."""
        return f"{self._directory}{os.pathsep}{os.environ['PATH']}"

    def break_gpu(self, agent_directory: Path) -> None:
        """Have the GPU of an agent's machine be broken until the machine has another boot."""
        name = f"{_BROKEN}{agent_directory.parent.name}-{agent_directory.name}"
        shutil.copyfile(agent_directory / _BOOT, self._directory / name)

    def _program(self, name: str, text: str) -> Path:
        path = self._directory / name
        path.write_text(text.replace("{planted}", str(self._directory)))
        path.chmod(0o755)
        return path


def _report(status: str, *warnings: dict[str, Any]) -> dict[str, Any]:
    """The report of ``dcgmi diag -j`` on GPU 0 of a machine."""
    gpu = {"entity_group": "GPU", "entity_group_id": 1}
    result = {**gpu, "entity_id": 0, "status": status, "warnings": list(warnings)}
    test = {"name": "memory", "results": [result], "test_summary": {"status": status}}
    return {
        "DCGM Diagnostic": {"test_categories": [{"category": "Hardware", "tests": [test]}]},
        "entity_groups": [{**gpu, "entities": [{"entity_id": 0, "device_id": "1eb8"}]}],
        "metadata": {"version": "4.2.3", "driver": "550.90"},
    }
