"""The header of a batch script and the options of sbatch, by the facts recorded of Slurm 22.05."""

import pytest

from muster.cli.sbatch.header import SbatchError, directives
from muster.cli.sbatch.options import (
    TABLE,
    VARIABLES,
    Effect,
    from_variables,
    later_wins,
    parsed,
    refuse_impossible,
    without_effect,
)

SHEBANG = "#!/bin/bash\n"


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("#SBATCH --mem=4G  # per node", ["--mem=4G"]),
        ("#SBATCH --mem=4G# per node", ["--mem=4G"]),
        ("#SBATCH -N1 -n 4\t-c 2", ["-N1", "-n", "4", "-c", "2"]),
        ("##SBATCH -n 4\n# SBATCH -n 5\n #SBATCH -n 6\n#SBATCH -n 7", ["-n", "7"]),
        ("\n\n   \n# words\n#SBATCH -n 1", ["-n", "1"]),
        ("#SBATCH -n 1\necho\n#SBATCH -n 2", ["-n", "1"]),
        ("set -e; #SBATCH -n 1\n#SBATCH -n 2", []),
        ("#SBATCH --job-name=\"two words\" -D 'a b'", ["--job-name=two words", "-D", "a b"]),
        ("#SBATCH -J a\\ b\\#c", ["-J", "a b#c"]),
        ("#SBATCH --comment='#1'", ["--comment=#1"]),
        ('#SBATCH --comment=""', ["--comment="]),
        ("#SBATCH -o $HOME/x-%j", ["-o", "$HOME/x-%j"]),
        ("#SBATCH", []),
    ],
)
def test_words_of_a_header(lines: str, words: list[str]) -> None:
    assert directives(SHEBANG + lines) == words


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("echo hello\n", "first line must be #!"),
        ("\n#!/bin/sh\n", "first line must be #!"),
        ("#!/bin/sh\r\n#SBATCH -n 1\r\n", "line breaks of DOS"),
        (SHEBANG + "#SBATCH --job-name='a\n", "line 2: the quotation"),
    ],
)
def test_script_that_is_refused(text: str, said: str) -> None:
    with pytest.raises(SbatchError, match=said):
        directives(text)


@pytest.mark.parametrize(
    ("words", "values", "rest"),
    [
        ("--mem=4G --mem 5G", {"mem": "5G"}, []),
        ("-n4 -c 2", {"ntasks": "4", "cpus-per-task": "2"}, []),
        ("-QW", {"quiet": "", "wait": ""}, []),
        ("-phigh", {"partition": "high"}, []),
        ("--exclusive user", {"exclusive": ""}, ["user"]),
        ("--exclusive=user -k", {"exclusive": "user", "no-kill": ""}, []),
        ("--out x --err=y", {"output": "x", "error": "y"}, []),
        ("--tasks-per-node=3 --constrain=a", {"ntasks-per-node": "3", "constraint": "a"}, []),
        ("--cluster=c --license l", {"clusters": "c", "licenses": "l"}, []),
        ("-p --mem=1", {"partition": "--mem=1"}, []),
        ("script -n 4", {}, ["script", "-n", "4"]),
        ("-n 1 -- -x", {"ntasks": "1"}, ["-x"]),
    ],
)
def test_options(words: str, values: dict[str, str], rest: list[str]) -> None:
    assert parsed(words.split()) == (values, rest)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--workdir=/x", "unrecognized option '--workdir'"),
        ("--container-image=x", "unrecognized option"),
        ("--gpu=1", "ambiguous.*--gpus-per-node"),
        ("--requeue=yes", "doesn't allow an argument"),
        ("--mem", "'--mem' requires an argument"),
        ("-n", "'n' requires an argument"),
        ("-y", "invalid option -- 'y'"),
    ],
)
def test_options_that_are_refused(words: str, said: str) -> None:
    with pytest.raises(SbatchError, match=said):
        parsed(words.split())


def test_last_value_counts_and_stands_last() -> None:
    given = later_wins({"mem": "1", "time": "2"}, {"qos": "q"}, {"mem": "3"})
    assert list(given.items()) == [("time", "2"), ("qos", "q"), ("mem", "3")]


def test_variables_stand_for_options() -> None:
    environment = {"SBATCH_PARTITION": "gpu", "SBATCH_WAIT": "1", "SLURM_NTASKS": "2"}
    assert from_variables(environment) == {"partition": "gpu", "wait": ""}
    assert set(VARIABLES.values()) <= {row.name for row in TABLE}


def test_every_option_that_is_not_done_says_what_that_means() -> None:
    names = [row.name for row in TABLE]
    letters = [row.letter for row in TABLE if row.letter]
    assert len(set(names)) == len(names)
    assert len(set(letters)) == len(letters)
    for row in TABLE:
        assert bool(row.says) is (row.effect in (Effect.LOST, Effect.REFUSED)), row.name
        if row.effect is Effect.REFUSED:
            with pytest.raises(SbatchError, match=f"--{row.name} cannot be done"):
                refuse_impossible([row.name])
        else:
            refuse_impossible([row.name])
        assert len(without_effect([row.name])) == (row.effect is Effect.LOST)
