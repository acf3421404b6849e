"""A batch script as a job: the keys of a JobSpec, and what of its options is not done."""

import posixpath
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

from muster.cli.sbatch import amounts, options
from muster.cli.sbatch.header import SbatchError, directives
from muster.cli.sbatch.options import Values
from muster.cli.sbatch.prologue import PROLOGUE, SCRIPT, file_word, prologue, variables
from muster.cli.sbatch.request import request_of
from muster.core.text import ATTRIBUTE, ENV_NAME, MAX_ARGUMENT, is_unicode

KILL_WAIT_S = 30
"""Seconds between SIGTERM and SIGKILL at the time limit (Slurm's KillWait)."""
_OF_SHELL = frozenset({"PWD", "OLDPWD", "SHLVL", "_"})
_CALLED = re.compile(r"^[^#\n]*?\b(srun|scontrol|squeue|sacct|scancel|sbcast)\b", re.MULTILINE)
_EXPORTED = re.compile(r"""(?:[^,'"]|'[^']*'|"[^"]*")+""")
_CONDITIONS = {
    "afterok": "succeeded",
    "afternotok": "failed",
    "afterany": "ended",
    "after": "running",
}


class BatchScript(NamedTuple):
    """A script with its arguments.

    Args:
        name: of the job, unless an option gives it.
        text: of the script.
        arguments: of the script.
        typed: options of the command line.
    """

    name: str
    text: str
    arguments: Sequence[str]
    typed: Values


class Setting(NamedTuple):
    """The machine, the person and the cluster that matter to a script that is handed in.

    Args:
        directory: of the submission.
        host: name of the machine.
        environment: of the caller.
        umask: of the caller.
        now: with the caller's zone.
        groups: names of the cluster's scaling groups.
        projects: names of the caller's projects.
        namesakes: ids of the caller's live jobs of a name.
    """

    directory: str
    host: str
    environment: Mapping[str, str]
    umask: int
    now: datetime
    groups: Collection[str] = ()
    projects: Collection[str] = ()
    namesakes: Callable[[str], Sequence[str]] = lambda _: ()


class Translated(NamedTuple):
    """A job, and what the person should know of it.

    Args:
        keys: of a JobSpec.
        told: sentences on options that have no effect.
        values: the options that counted.
    """

    keys: dict[str, Any]
    told: list[str]
    values: Values


def translated(batch: BatchScript, setting: Setting) -> Translated:
    """The job that a batch script is. The command line wins over variables, these over the script.

    Raises:
        SbatchError: the script or an option is wrong, or cannot be done here.
    """
    of_script, rest = options.parsed(directives(batch.text))
    if rest:
        raise SbatchError(f"invalid argument in a #SBATCH line: {rest[0][:80]!r}")
    values = options.later_wins(of_script, options.from_variables(setting.environment), batch.typed)
    options.refuse_impossible(values)
    told = options.without_effect(values)
    request = request_of(values)
    told += request.told
    name = values.get("job-name", batch.name)
    array = amounts.array(values["array"]) if "array" in values else None
    env, functions = environment(values.get("export"), setting.environment)
    directory = posixpath.normpath(posixpath.join(setting.directory, values.get("chdir", "")))
    keys: dict[str, Any] = {"kind": "job", "environment": "clean", "grace": KILL_WAIT_S}
    keys |= {"name": _job_name(name), "env": env}
    keys["resources"] = request.keys()
    if array is not None:
        keys |= {"tasks": array.indexes.last + 1, "only": str(array.indexes), "keep_going": True}
        if array.at_once is not None:
            keys["max_running"] = array.at_once
    _add_times(keys, values, setting)
    _add_place(keys, values, setting, told)
    known = variables(values, request, array) | {
        "SLURM_JOB_NAME": name,
        "SLURM_JOB_PARTITION": keys.get("group", "default"),
        "SLURM_SUBMIT_DIR": setting.directory,
        "SLURM_SUBMIT_HOST": setting.host,
    }
    before = prologue(
        known,
        array=array,
        has_gpus=request.gpus > 0,
        directory=directory,
        files=_files(values, directory, array is not None),
        is_appended=_is_appended(values),
        umask=setting.umask,
        functions=functions,
    )
    keys["files"] = {PROLOGUE: before, SCRIPT: batch.text}
    keys["command"] = ["/bin/sh", PROLOGUE, *batch.arguments]
    told += _commands_that_are_missing(batch.text)
    return Translated(keys, told, values)


def _job_name(name: str) -> str:
    """The nearest name that a job may have."""
    cleaned = re.sub(r"[^A-Za-z0-9._-]+", "-", name)[:63].strip("._-")
    return cleaned or "sbatch"


def _add_times(keys: dict[str, Any], values: Values, setting: Setting) -> None:
    """Time limit, earliest start, hold, requeueing, and the jobs that it waits for."""
    if "time" in values and (limit := amounts.minutes(values["time"])) is not None:
        keys["timeout"] = limit * 60
    if "begin" in values:
        moment = amounts.begin(values["begin"], setting.now)
        if moment is not None:
            keys["not_before"] = moment.timestamp()
    if "hold" in values:
        keys["hold"] = True
    requeued = [name for name in values if name in ("requeue", "no-requeue")]
    if requeued[-1:] == ["no-requeue"]:
        keys["max_retries_preemption"] = 0
    if "dependency" in values:
        namesakes = partial(setting.namesakes, keys["name"])
        keys["after"] = _after(values["dependency"], namesakes)


def _after(text: str, namesakes: Callable[[], Sequence[str]]) -> list[str]:
    """
    Args:
        namesakes: the ids of the caller's live jobs of the same name.

    Raises:
        SbatchError: a kind of dependency is wrong, or is not there.
    """
    after: list[str] = []
    if "?" in text:
        raise SbatchError("--dependency: alternatives, by ?, cannot be done: all of them must hold")
    for part in text.split(","):
        kind, *refs = part.split(":")
        if kind == "singleton" and not refs:
            after += [f"{each}:ended" for each in namesakes()]
            continue
        if kind in ("aftercorr", "afterburstbuffer"):
            raise SbatchError(f"--dependency: {kind} cannot be done yet")
        if kind not in _CONDITIONS or not refs or not all(refs):
            raise SbatchError(f"--dependency: problem with {part!r}: expected such as afterok:ID")
        for ref in refs:
            if "+" in ref or "_" in ref:
                raise SbatchError(
                    f"--dependency: {ref!r} cannot be done: give the id of a whole job, no delay"
                )
            after.append(f"{ref}:{_CONDITIONS[kind]}")
    return after


def _add_place(keys: dict[str, Any], values: Values, setting: Setting, told: list[str]) -> None:
    """Group, project and machines."""
    if "partition" in values:
        known = [each for each in values["partition"].split(",") if each in setting.groups]
        if known:
            keys["group"] = known[0]
        else:
            told.append(
                f"--partition={values['partition']} has no effect: there is no such scaling group "
                f"(there are {', '.join(sorted(setting.groups)) or 'none'})"
            )
    if "account" in values:
        if values["account"] in setting.projects:
            keys["project"] = values["account"]
        else:
            told.append(f"--account={values['account']} has no effect: it is no project of yours")
    placement: dict[str, Any] = {}
    if "nodelist" in values:
        names = hosts(values["nodelist"])
        if len(names) > 1:
            raise SbatchError("--nodelist: a batch script gets one machine so far: name one")
        placement["agents"] = names
    constraints = [f"hostname!={each}" for each in hosts(values.get("exclude", ""))]
    constraints += _features(values["constraint"]) if "constraint" in values else []
    if constraints:
        placement["constraints"] = constraints
    if placement:
        keys["placement"] = placement


def _features(text: str) -> list[str]:
    """The attributes that a machine must have.

    Raises:
        SbatchError: there are alternatives, counts or parentheses.
    """
    features = re.split("[&,]", text)
    if not all(re.fullmatch(ATTRIBUTE, each) for each in features):
        raise SbatchError(
            f"--constraint={text} cannot be done: expected attributes that agents have, as a or a&b"
        )
    return features


def hosts(text: str) -> list[str]:
    """The names in a list of hosts, such as ``a1,b[1-3,7],c[01-02]``.

    Raises:
        SbatchError: brackets are not closed, or hold no numbers.
    """
    found: list[str] = []
    for part in re.findall(r"(?:[^,\[]|\[[^\]]*\]?)+", text):
        begin, bracket, rest = part.partition("[")
        numbers, closed, end = rest.partition("]")
        if any(each in begin + end for each in "[]"):
            raise SbatchError(f"invalid list of hosts {text!r}: expected brackets once in a name")
        if not bracket:
            found.append(part)
            continue
        if not closed or not re.fullmatch(r"[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*", numbers):
            raise SbatchError(f"invalid list of hosts {text!r}")
        for each in numbers.split(","):
            first, _, last = each.partition("-")
            count = int(last or first) - int(first) + 1
            if count > 1000:
                raise SbatchError(f"the list of hosts {text!r} is too long")
            found += [f"{begin}{int(first) + more:0{len(first)}d}{end}" for more in range(count)]
    return found


def environment(
    export: str | None, caller: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """The variables that the script gets from the caller, and those among them that a spec cannot
    name, such as exported functions of bash. Slurm's own and Muster's are left out: they tell of
    another job.

    Args:
        export: the value of --export; None stands for ALL.
    """
    taken = {
        name: text
        for name, text in caller.items()
        if name not in _OF_SHELL
        and not name.startswith("-")
        and not name.startswith(("MUSTER_", "SLURM_", "SLURMD_"))
        and len(text) < MAX_ARGUMENT
        and is_unicode(name + text)
    }
    words = _EXPORTED.findall(export or "ALL")
    found = dict(taken) if "ALL" in words else {}
    for word in words:
        name, equals, text = word.partition("=")
        if equals:
            found[name] = re.sub("['\"]", "", text)
        elif name in taken:
            found[name] = taken[name]
    functions = {name: text for name, text in found.items() if not re.fullmatch(ENV_NAME, name)}
    return {name: found[name] for name in found if name not in functions}, functions


def _files(values: Values, directory: str, is_array: bool) -> dict[str, str]:
    """Words of shell for the files of the three streams."""
    otherwise = "slurm-%A_%a.out" if is_array else "slurm-%j.out"
    patterns = {"output": values.get("output", otherwise)}
    if values.get("error", patterns["output"]) != patterns["output"]:
        patterns["error"] = values["error"]
    if "input" in values:
        patterns["input"] = values["input"]
    return {name: file_word(text, directory, is_array) for name, text in patterns.items()}


def _is_appended(values: Values) -> bool:
    """
    Raises:
        SbatchError: the mode is neither ``append`` nor ``truncate``.
    """
    mode = values.get("open-mode", "truncate")
    if mode not in ("append", "truncate", "a", "t"):
        raise SbatchError(f"invalid --open-mode {mode!r}: expected append or truncate")
    return mode[0] == "a"


def _commands_that_are_missing(text: str) -> list[str]:
    """The sentence on programs of Slurm that the script seems to call."""
    called = sorted(set(_CALLED.findall(text)))
    if not called:
        return []
    return [
        f"the script seems to call {', '.join(called)}: Muster has no command of such a name yet"
    ]
