"""The options of sbatch: one table of what becomes of each, and the reader of its command line, by
the rules of getopt_long."""

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from muster.cli.sbatch.header import SbatchError

Values = dict[str, str]
"""The values of options by their long names; empty for those that take none."""


class Takes(Enum):
    """Whether an option has a value; an optional one stands behind ``=``, or after the letter."""

    NOTHING = "nothing"
    VALUE = "a value"
    MAYBE = "a value or nothing"


class Effect(Enum):
    """The consequence of an option here."""

    DONE = "done"
    NONE = "without effect, and nothing is lost"
    LOST = "without effect, which is told"
    REFUSED = "refused"


class SbatchOption(NamedTuple):
    """An option of sbatch. ``says`` ends the sentence on one that has no effect, or is refused."""

    name: str
    letter: str = ""
    takes: Takes = Takes.VALUE
    effect: Effect = Effect.DONE
    says: str = ""


_N, _M = Takes.NOTHING, Takes.MAYBE
_NONE, _LOST, _REFUSED = Effect.NONE, Effect.LOST, Effect.REFUSED
_LAYOUT = "processes are not bound or laid out"
_SITE = "there is no such thing here"

TABLE = (
    SbatchOption("account", "A"),
    SbatchOption("array", "a"),
    SbatchOption("begin", "b"),
    SbatchOption("chdir", "D"),
    SbatchOption("comment", effect=_NONE),
    SbatchOption("constraint", "C"),
    SbatchOption("cpus-per-gpu"),
    SbatchOption("cpus-per-task", "c"),
    SbatchOption("dependency", "d"),
    SbatchOption("error", "e"),
    SbatchOption("exclude", "x"),
    SbatchOption("export"),
    SbatchOption("gpus", "G"),
    SbatchOption("gpus-per-node"),
    SbatchOption("gpus-per-task"),
    SbatchOption("gres"),
    SbatchOption("input", "i"),
    SbatchOption("job-name", "J"),
    SbatchOption("mem"),
    SbatchOption("mem-per-cpu"),
    SbatchOption("mem-per-gpu"),
    SbatchOption("mincpus"),
    SbatchOption("no-requeue", takes=_N),
    SbatchOption("nodelist", "w"),
    SbatchOption("nodes", "N"),
    SbatchOption("ntasks", "n"),
    SbatchOption("ntasks-per-node"),
    SbatchOption("open-mode"),
    SbatchOption("output", "o"),
    SbatchOption("hold", "H", _N),
    SbatchOption("parsable", takes=_N),
    SbatchOption("partition", "p"),
    SbatchOption("quiet", "Q", _N),
    SbatchOption("time", "t"),
    SbatchOption("wait", "W", _N),
    SbatchOption("wrap"),
    # Nothing is lost without these.
    SbatchOption("contiguous", takes=_N, effect=_NONE),
    SbatchOption("delay-boot", effect=_NONE),
    SbatchOption("ignore-pbs", takes=_N, effect=_NONE),
    SbatchOption("kill-on-invalid-dep", effect=_NONE),
    SbatchOption("no-kill", "k", _M, _NONE),
    SbatchOption("oversubscribe", "s", _N, _NONE),
    SbatchOption("requeue", takes=_N, effect=_NONE),
    SbatchOption("spread-job", takes=_N, effect=_NONE),
    SbatchOption("use-min-nodes", takes=_N, effect=_NONE),
    SbatchOption("verbose", "v", _N, _NONE),
    SbatchOption("wait-all-nodes", effect=_NONE),
    # Something is, and it is told.
    SbatchOption("acctg-freq", effect=_LOST, says="nothing is sampled"),
    SbatchOption("bb", effect=_LOST, says=_SITE),
    SbatchOption("bbf", effect=_LOST, says=_SITE),
    SbatchOption("cluster-constraint", effect=_LOST, says=_SITE),
    SbatchOption("clusters", "M", effect=_LOST, says="the job goes to this cluster"),
    SbatchOption("core-spec", "S", effect=_LOST, says=_LAYOUT),
    SbatchOption("cores-per-socket", effect=_LOST, says=_LAYOUT),
    SbatchOption("cpu-freq", effect=_LOST, says="frequencies stay as they are"),
    SbatchOption("deadline", effect=_LOST, says="no job is removed for being late"),
    SbatchOption("distribution", "m", effect=_LOST, says=_LAYOUT),
    SbatchOption(
        "exclusive", takes=_M, effect=_LOST, says="others may run on the machine beside it"
    ),
    SbatchOption("extra-node-info", "B", effect=_LOST, says=_LAYOUT),
    SbatchOption(
        "get-user-env", takes=_M, effect=_LOST, says="no login shell is asked for its variables"
    ),
    SbatchOption("gid", effect=_LOST, says="the group is the account's"),
    SbatchOption("gpu-bind", effect=_LOST, says=_LAYOUT),
    SbatchOption("gpu-freq", effect=_LOST, says="frequencies stay as they are"),
    SbatchOption("gres-flags", effect=_LOST, says=_LAYOUT),
    SbatchOption("hint", effect=_LOST, says=_LAYOUT),
    SbatchOption("licenses", "L", effect=_LOST, says="no licences are counted for it"),
    SbatchOption(
        "mail-type", effect=_LOST, says="no mail is sent: `notify` of a spec tells a channel"
    ),
    SbatchOption(
        "mail-user", effect=_LOST, says="no mail is sent: `notify` of a spec tells a channel"
    ),
    SbatchOption("mcs-label", effect=_LOST, says=_SITE),
    SbatchOption("mem-bind", effect=_LOST, says=_LAYOUT),
    SbatchOption("network", effect=_LOST, says=_SITE),
    SbatchOption(
        "nice", takes=_M, effect=_LOST, says="`muster reprioritise` gives it another priority"
    ),
    SbatchOption("ntasks-per-core", effect=_LOST, says=_LAYOUT),
    SbatchOption("ntasks-per-gpu", effect=_LOST, says=_LAYOUT),
    SbatchOption("ntasks-per-socket", effect=_LOST, says=_LAYOUT),
    SbatchOption("overcommit", "O", _N, _LOST, _LAYOUT),
    SbatchOption("power", effect=_LOST, says=_SITE),
    SbatchOption("priority", effect=_LOST, says="`muster reprioritise` gives it another priority"),
    SbatchOption("profile", effect=_LOST, says="nothing is sampled"),
    SbatchOption("propagate", takes=_M, effect=_LOST, says="limits of the shell are not passed on"),
    SbatchOption(
        "qos", "q", effect=_LOST, says="quotas and priorities are those of its project and group"
    ),
    SbatchOption("reboot", takes=_N, effect=_LOST, says="no machine is started anew for it"),
    SbatchOption("reservation", effect=_LOST, says=_SITE),
    SbatchOption(
        "signal", effect=_LOST, says="SIGTERM comes at the time limit, SIGKILL 30 s later"
    ),
    SbatchOption("sockets-per-node", effect=_LOST, says=_LAYOUT),
    SbatchOption("switches", effect=_LOST, says="the network's tree is not known"),
    SbatchOption("thread-spec", effect=_LOST, says=_LAYOUT),
    SbatchOption("threads-per-core", effect=_LOST, says=_LAYOUT),
    SbatchOption("time-min", effect=_LOST, says="the time limit is --time"),
    SbatchOption("tmp", effect=_LOST, says="room of /tmp is not counted"),
    SbatchOption("uid", effect=_LOST, says="the account is that of the token"),
    SbatchOption("wckey", effect=_LOST, says=_SITE),
    # And without these the job would be another.
    SbatchOption("batch", effect=_REFUSED, says="it is for jobs of several kinds of machines"),
    SbatchOption("container", effect=_REFUSED, says="start the container in the script"),
    SbatchOption("help", "h", _N, _REFUSED, "see `muster sbatch --help`"),
    SbatchOption("usage", takes=_N, effect=_REFUSED, says="see `muster sbatch --help`"),
    SbatchOption("version", "V", _N, _REFUSED, "see `muster version`"),
    SbatchOption("test-only", takes=_N, effect=_REFUSED, says="use `muster plan` with a spec"),
)
BY_NAME = {row.name: row for row in TABLE}
BY_LETTER = {row.letter: row for row in TABLE if row.letter}
_OLD = {
    "tasks-per-node": "ntasks-per-node",
    "tasks": "ntasks",
    "cluster": "clusters",
    "share": "oversubscribe",
}

VARIABLES = {
    "SBATCH_ACCOUNT": "account",
    "SBATCH_ARRAY_INX": "array",
    "SBATCH_CONSTRAINT": "constraint",
    "SBATCH_ERROR": "error",
    "SBATCH_EXCLUSIVE": "exclusive",
    "SBATCH_EXPORT": "export",
    "SBATCH_GPUS": "gpus",
    "SBATCH_GPUS_PER_NODE": "gpus-per-node",
    "SBATCH_GPUS_PER_TASK": "gpus-per-task",
    "SBATCH_GRES": "gres",
    "SBATCH_INPUT": "input",
    "SBATCH_JOB_NAME": "job-name",
    "SBATCH_MEM_PER_CPU": "mem-per-cpu",
    "SBATCH_MEM_PER_GPU": "mem-per-gpu",
    "SBATCH_MEM_PER_NODE": "mem",
    "SBATCH_NO_REQUEUE": "no-requeue",
    "SBATCH_OPEN_MODE": "open-mode",
    "SBATCH_OUTPUT": "output",
    "SBATCH_PARTITION": "partition",
    "SBATCH_QOS": "qos",
    "SBATCH_REQUEUE": "requeue",
    "SBATCH_RESERVATION": "reservation",
    "SBATCH_SIGNAL": "signal",
    "SBATCH_TIMELIMIT": "time",
    "SBATCH_WAIT": "wait",
}
"""Variables that stand for options: they win over the script, and options typed win over them."""


def from_variables(environment: Mapping[str, str]) -> Values:
    """The values of options that variables give."""
    found: Values = {}
    for variable, name in VARIABLES.items():
        if variable in environment:
            has_value = BY_NAME[name].takes is not Takes.NOTHING
            found[name] = environment[variable] if has_value else ""
    return found


def later_wins(*given: Values) -> Values:
    """All options, each with the last value that it was given, in the order in which they got
    these."""
    values: Values = {}
    for each in given:
        for name, value in each.items():
            values.pop(name, None)
            values[name] = value
    return values


def parsed(words: Sequence[str]) -> tuple[Values, list[str]]:
    """The values of the options at the front of ``words``, the last of each, and the words from the
    first one on that is no option.

    Raises:
        SbatchError: an option is unknown or ambiguous, lacks its value, or has one that it does not
            take.
    """
    values: Values = {}
    rest = list(words)
    while rest and rest[0].startswith("-") and rest[0] != "-":
        word = rest.pop(0)
        if word == "--":
            break
        if word.startswith("--"):
            _read_long(word, rest, values)
        else:
            _read_short(word[1:], rest, values)
    return values, rest


def _read_long(word: str, rest: list[str], values: Values) -> None:
    name, equals, value = word.removeprefix("--").partition("=")
    row = _named(name)
    if row.takes is Takes.NOTHING and equals:
        raise SbatchError(f"option '--{row.name}' doesn't allow an argument")
    if row.takes is Takes.VALUE and not equals:
        value = _next(rest, f"option '--{row.name}'")
    values.pop(row.name, None)  # the last one stands last
    values[row.name] = value


def _read_short(letters: str, rest: list[str], values: Values) -> None:
    while letters:
        letter, letters = letters[0], letters[1:]
        row = BY_LETTER.get(letter)
        if row is None:
            raise SbatchError(f"invalid option -- '{letter}'")
        value = ""
        if row.takes is not Takes.NOTHING:
            value, letters = letters, ""
        if row.takes is Takes.VALUE and not value:
            value = _next(rest, f"option -- '{letter}'")
        values.pop(row.name, None)
        values[row.name] = value


def _next(rest: list[str], option: str) -> str:
    if not rest:
        raise SbatchError(f"{option} requires an argument")
    return rest.pop(0)


def _named(name: str) -> SbatchOption:
    """The option of a name, of an old one, or of the beginning of one alone."""
    known = BY_NAME.get(_OLD.get(name, name))
    if known is not None:
        return known
    found = {_OLD.get(full, full) for full in (*BY_NAME, *_OLD) if name and full.startswith(name)}
    if not found:
        raise SbatchError(f"unrecognized option '--{name}'")
    if len(found) > 1:
        near = ", ".join(f"--{each}" for each in sorted(found))
        raise SbatchError(f"option '--{name}' is ambiguous; possibilities: {near}")
    return BY_NAME[found.pop()]


def refuse_impossible(names: Iterable[str]) -> None:
    """
    Raises:
        SbatchError: an option cannot be done, and the job would be another without it.
    """
    for row in map(BY_NAME.__getitem__, names):
        if row.effect is Effect.REFUSED:
            raise SbatchError(f"--{row.name} cannot be done: {row.says}")


def without_effect(names: Iterable[str]) -> list[str]:
    """The sentences on options that are lost here."""
    rows = [BY_NAME[name] for name in names]
    lost = [row for row in rows if row.effect is Effect.LOST]
    return [f"--{row.name} has no effect: {row.says}" for row in lost]
