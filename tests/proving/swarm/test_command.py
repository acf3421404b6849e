"""The program goes on where it was stopped, leaves nothing behind, and keeps and tells failures."""

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import psycopg
import pytest
from proving.swarm import __main__, databases
from proving.swarm.__main__ import main
from proving.swarm.figures import Figures, load, save
from proving.swarm.invariants.attempts import Pauses
from proving.swarm.runner import RunResult, run
from proving.swarm.scenario import load_scenario
from tests.databases import Server
from tests.patience import until


@pytest.fixture(autouse=True)
def _program_keeps_only_itself_quiet() -> Iterator[None]:
    yield
    logging.disable(logging.NOTSET)


def test_killed_program_leaves_no_process_and_goes_on_where_it_was(tmp_path: Path) -> None:
    state, temporary = tmp_path / "state", tmp_path / "temporary"
    temporary.mkdir()
    words = ["--first", "40", "--workers", "1", "--state", str(state)]
    program = subprocess.Popen(
        [sys.executable, "-m", "proving.swarm", *words],
        env={**os.environ, "TMPDIR": str(temporary)},
    )
    try:
        until(state.exists)
        workers = _children(program.pid)
    finally:
        program.kill()
        program.wait()
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers))
    assert workers
    assert not [*temporary.iterdir()]
    next_seed, figures = load(state)
    assert next_seed == 40 + figures.runs
    assert main(["--state", str(state), "--resume", "--seeds", "1", "--workers", "1"]) == 0
    assert load(state)[0] == next_seed + 1
    assert load(state)[1].runs == figures.runs + 1


def _children(pid: int) -> list[int]:
    return [*map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]


def test_sums_come_back_from_a_file_as_they_were(tmp_path: Path) -> None:
    figures = Figures()
    figures.add(RunResult(3))
    figures.faults["cut"] += 2
    figures.evaluated["no attempt runs twice"] += 5
    save(tmp_path / "state", 4, figures)
    assert load(tmp_path / "state") == (4, figures)


@pytest.mark.parametrize("text", ["", "218", json.dumps({"next": 1}), "{"])
def test_file_that_does_not_tell_where_to_go_on_is_refused(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "state").write_text(text)
    assert main(["--state", str(tmp_path / "state"), "--resume", "--seeds", "1"]) == 2
    assert "remove it to begin anew" in capsys.readouterr().err


@pytest.mark.parametrize("content", [None, b"\xff", b"steps: ["])
def test_scenario_that_cannot_be_read_is_named(
    content: bytes | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario = tmp_path / "a.yaml"
    if content is not None:
        scenario.write_bytes(content)
    assert main([str(scenario)]) == 2
    (told,) = capsys.readouterr().err.splitlines()
    assert str(scenario) in told


@pytest.mark.parametrize(
    "words", ["--seeds -1", "--seeds 0", "--workers 0", "--first -1", "--minutes nan", "--seeds x"]
)
def test_number_with_which_nothing_would_be_judged_is_refused(
    words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words.split())
    assert ended.value.code == 2
    assert words.split()[0] in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("muster.db", "cannot be understood"),
        ("sqlite:///muster.db", "--server names a PostgreSQL server"),
        ("postgresql://muster:secret@127.0.0.1:1/x", "look at whether the server runs there"),
    ],
)
def test_server_that_cannot_be_used_is_told_in_a_sentence(
    url: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--server", url, "--seeds", "1"]) == 2
    (told,) = capsys.readouterr().err.splitlines()
    assert said in told
    assert "secret" not in told


def test_server_on_which_no_database_may_be_made_is_told_in_a_sentence(
    postgresql: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    postgresql.execute("CREATE ROLE maker LOGIN")
    url = postgresql.url("postgres").replace("muster@", "maker@")
    assert main(["--server", url, "--seeds", "1"]) == 2
    assert "let the user create databases" in capsys.readouterr().err


def test_interrupted_program_leaves_no_database_on_the_server(
    postgresql: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_url: str) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr(databases, "_used", [])
    monkeypatch.setattr(databases, "open_engine", interrupted)
    assert main(["--server", postgresql.url("postgres"), "--seeds", "1"]) == 130
    assert capsys.readouterr().out == "stopped\n"
    with psycopg.connect(postgresql.url("postgres")) as connection:
        left = "SELECT datname FROM pg_database WHERE datname LIKE 'muster_swarm_%'"
        assert connection.execute(left).fetchall() == []


def test_state_that_could_not_be_kept_is_told_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = tmp_path / "nowhere" / "state"
    assert main(["--state", str(state), "--seeds", "1"]) == 2
    assert str(state) in capsys.readouterr().err


def test_steps_are_listed_with_their_parameters_and_what_they_do(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--steps"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert len(told) > 50
    assert all(line.strip() for line in told)
    assert "kill_supervisor(agent: integer)" in told
    assert "poison(kind: 'a defect' | 'what cannot be stored')" in told


def test_violation_is_told_and_kept_as_a_scenario_that_shows_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Pauses, "between_steps", lambda self: self.expect(False, "it is so"))
    monkeypatch.setattr(__main__, "results", lambda seeds, *how: map(run, seeds))
    assert main(["--first", "7", "--seeds", "1", "--keep", str(tmp_path / "kept")]) == 1
    told = capsys.readouterr().out
    assert f"seed 7: {Pauses.says}: it is so" in told
    assert "violations: 1 (seeds 7)" in told
    kept = tmp_path / "kept" / "seed-7.yaml"
    assert load_scenario(kept.read_text(), kept.name).about == "it is so"
    assert main([str(kept)]) == 1
    assert f"VIOLATION: {Pauses.says}: it is so" in capsys.readouterr().out
