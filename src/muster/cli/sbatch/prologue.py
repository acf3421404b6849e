"""The lines of shell that run in a kernel before a batch script: the variables of Slurm, from those
of Muster, the working directory, the files of its output, and then the script."""

import posixpath
import re
from collections.abc import Mapping
from shlex import quote

from muster.cli.sbatch.amounts import Array
from muster.cli.sbatch.options import Values
from muster.cli.sbatch.request import MachineRequest

PROLOGUE = "slurm_prologue"
SCRIPT = "slurm_script"
"""The file of the script, as Slurm names its copy."""
NO_OUTPUT = 53
"""The exit code where a file of the streams cannot be opened: Slurm's is 0:53."""
NO_ARRAY = "4294967294"
"""The index of a job that is no array, as Slurm prints it."""
_MIB = 1024 * 1024
_PATTERN = re.compile(r"%(?:%|([0-9]*)([AaJjNnstuxb]))")
_WORDS = {
    "A": '"$SLURM_ARRAY_JOB_ID"',
    "a": '"$SLURM_ARRAY_TASK_ID"',
    "J": '"$SLURM_JOB_ID"',
    "j": '"$SLURM_JOB_ID"',
    "N": '"$SLURMD_NODENAME"',
    "n": "0",
    "s": "batch",
    "t": "0",
    "u": '"$SLURM_JOB_USER"',
    "x": '"$SLURM_JOB_NAME"',
}
_OUTSIDE_ARRAYS = {"A": _WORDS["j"], "a": NO_ARRAY, "b": "4"}
_MOST_DIGITS = 10


def file_word(pattern: str, directory: str, is_array: bool) -> str:
    """The word of shell for the path of an output file.

    Args:
        pattern: with ``%j`` and the like; a backslash in it leaves them all as they are.
        directory: in which a relative path begins.
    """
    if "\\" in pattern:
        return quote(posixpath.join(directory, pattern.replace("\\", "")))
    words = _WORDS if is_array else _WORDS | _OUTSIDE_ARRAYS
    words = {"b": '"$((SLURM_ARRAY_TASK_ID % 10))"'} | words

    def word(found: "re.Match[str]") -> str:
        if found[0] == "%%":
            return "%"
        width = min(int(found[1] or 0), _MOST_DIGITS)
        value = words[found[2]]
        if found[2] == "a" and width and is_array:
            return f'"$(printf %0{width}d {value})"'
        return value

    parts: list[str] = [quote(directory.rstrip("/") + "/")] if pattern[:1] != "/" else []
    at = 0
    for found in _PATTERN.finditer(pattern):
        parts += [quote(pattern[at : found.start()])] if at < found.start() else []
        parts.append(word(found))
        at = found.end()
    parts += [quote(pattern[at:])] if at < len(pattern) else []
    return "".join(parts)


def variables(values: Values, request: MachineRequest, array: Array | None) -> dict[str, str]:
    """Variables whose values are known when the script is handed in. Those of options that were not
    given are left out, as Slurm leaves them out."""
    cpus, tasks = str(request.cpus), str(request.tasks)
    found = {
        "ENVIRONMENT": "BATCH",
        "SLURM_CLUSTER_NAME": "muster",
        "SLURM_CPUS_ON_NODE": cpus,
        "SLURM_GTIDS": "0",
        "SLURM_JOB_CPUS_PER_NODE": cpus,
        "SLURM_JOB_NUM_NODES": "1",
        "SLURM_LOCALID": "0",
        "SLURM_NNODES": "1",
        "SLURM_NODEID": "0",
        "SLURM_PROCID": "0",
        "SLURM_TASKS_PER_NODE": tasks,
    }
    if "ntasks" in values or "ntasks-per-node" in values:
        found |= {"SLURM_NTASKS": tasks, "SLURM_NPROCS": tasks}
    if request.gpus:
        found["SLURM_GPUS_ON_NODE"] = str(request.gpus)
    as_written = {
        "account": "SLURM_JOB_ACCOUNT",
        "cpus-per-gpu": "SLURM_CPUS_PER_GPU",
        "cpus-per-task": "SLURM_CPUS_PER_TASK",
        "export": "SLURM_EXPORT_ENV",
        "gpus": "SLURM_GPUS",
        "gpus-per-node": "SLURM_GPUS_PER_NODE",
        "gpus-per-task": "SLURM_GPUS_PER_TASK",
        "ntasks-per-node": "SLURM_NTASKS_PER_NODE",
        "qos": "SLURM_JOB_QOS",
    }
    found |= {variable: values[name] for name, variable in as_written.items() if name in values}
    if array is not None:
        found |= {
            "SLURM_ARRAY_TASK_COUNT": str(len(array.indexes)),
            "SLURM_ARRAY_TASK_MAX": str(array.indexes.last),
            "SLURM_ARRAY_TASK_MIN": str(array.indexes[0]),
            "SLURM_ARRAY_TASK_STEP": str(array.step),
        }
    return found | _of_memory(values, request)


def _of_memory(values: Values, request: MachineRequest) -> dict[str, str]:
    """The variable of the option for memory that counts, in MiB."""
    if request.memory is None:
        return {}
    whole = request.memory // _MIB
    of_option = {
        "mem": ("SLURM_MEM_PER_NODE", 1),
        "mem-per-cpu": ("SLURM_MEM_PER_CPU", request.cpus),
        "mem-per-gpu": ("SLURM_MEM_PER_GPU", request.gpus or 1),
    }
    variable, times = of_option[[name for name in values if name in of_option][-1]]
    return {variable: str(whole // times)}


_LEARNT = """\
SLURMD_NODENAME=$(uname -n)
SLURMD_NODENAME=${SLURMD_NODENAME%%.*}
SLURM_JOB_NODELIST=$SLURMD_NODENAME
SLURM_NODELIST=$SLURMD_NODENAME
SLURM_JOB_UID=$(id -u)
SLURM_JOB_USER=$(id -un 2>/dev/null || echo "$SLURM_JOB_UID")
SLURM_TASK_PID=$$
export SLURMD_NODENAME SLURM_JOB_NODELIST SLURM_NODELIST SLURM_JOB_UID SLURM_JOB_USER SLURM_TASK_PID
[ "${MUSTER_ATTEMPT:-1}" -le 1 ] || export SLURM_RESTART_COUNT="$((MUSTER_ATTEMPT - 1))"
[ -d "${TMPDIR:-}" ] || export TMPDIR=/tmp
"""
_OF_JOB = """\
export SLURM_JOB_ID="$MUSTER_JOB_ID" SLURM_JOBID="$MUSTER_JOB_ID"
"""
_OF_ARRAY = """\
export SLURM_ARRAY_JOB_ID="$MUSTER_JOB_ID" SLURM_ARRAY_TASK_ID="$MUSTER_TASK_INDEX"
export SLURM_JOB_ID="${MUSTER_JOB_ID}_$MUSTER_TASK_INDEX"
export SLURM_JOBID="$SLURM_JOB_ID"
"""
_OF_GPUS = """\
export SLURM_JOB_GPUS="$CUDA_VISIBLE_DEVICES"
"""


def prologue(
    told: Mapping[str, str],
    *,
    array: Array | None,
    has_gpus: bool,
    directory: str,
    files: Mapping[str, str],
    is_appended: bool,
    umask: int,
    functions: Mapping[str, str],
) -> str:
    """The text of the file ``PROLOGUE``, which has the script's arguments as its own.

    Args:
        told: variables with their values.
        directory: the working directory; the script runs in /tmp where it cannot be entered, as in
            Slurm.
        files: words of shell for the paths of ``output``, ``error`` (where it is another file) and
            ``input``.
        is_appended: whether the files of the output keep what is in them.
        functions: variables that no shell can export by their names, as those of functions.
    """
    begins = [f"export {name}={quote(text)}\n" for name, text in sorted(told.items())]
    begins += [_OF_JOB if array is None else _OF_ARRAY, _LEARNT]
    if has_gpus:
        begins.append(_OF_GPUS)
    lines = [f"umask {umask:04o}", f"_script=$PWD/{SCRIPT}"]
    lines.append(f"cd {quote(directory)} || cd /tmp")
    lines.append(f"_output={files['output']}")
    lines.append("printf 'output: %s\\n' \"$_output\"")
    lines.append(_opened("_output", is_appended))
    errors = "2>&1"
    if "error" in files:
        lines += [f"_error={files['error']}", _opened("_error", is_appended)]
        errors = '2>>"$_error"'
    added = "".join(f" {quote(f'{name}={text}')}" for name, text in sorted(functions.items()))
    lines += [f"_input={files.get('input', '/dev/null')}"]
    lines.append(f'true <"$_input" || exit {NO_OUTPUT}')
    lines.append(f'exec env{added} "$_script" "$@" <"$_input" >>"$_output" {errors}')
    return "".join(begins) + "\n".join(lines) + "\n"


def _opened(name: str, is_appended: bool) -> str:
    """The line that makes the file empty, or fails as Slurm does."""
    sign = ">>" if is_appended else ">"
    return f'true {sign}"${name}" || exit {NO_OUTPUT}'
