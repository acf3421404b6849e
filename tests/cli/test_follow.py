import signal
import threading
from collections.abc import Callable, Iterator

import pytest
from tests.cli.fake_cluster import IDS, FakeCluster, because, job, kernel, session, task

from muster.cli.cluster import Cluster, OnContact
from muster.cli.follow import follow
from muster.cli.follow.feed import Away, Back, Feed, away_line, back_line
from muster.client import Client, Unreachable
from muster.core.errors import MusterError
from muster.core.reasons import ReasonCode
from muster.core.states import JobState, TaskState
from muster.core.views.placement import WhyView
from muster.core.views.work import JobDetail, SessionDetail, TaskPage

PENDING, RUNNING = JobState.PENDING, JobState.RUNNING
SUCCEEDED, FAILED, KILLED = JobState.SUCCEEDED, JobState.FAILED, JobState.KILLED


def life(*states: JobState, tasks: int = 1) -> list[JobDetail]:
    return [job(state=state, counts={TaskState(state.value): tasks}) for state in states]


def interrupt(number: int = signal.SIGINT) -> None:
    """A signal, Ctrl-C if none is named, as the process gets it: in its main thread."""
    main = threading.main_thread().ident
    assert main is not None
    signal.pthread_kill(main, number)


def test_run_shows_the_output_and_ends_well() -> None:
    cluster = FakeCluster(
        play=life(PENDING, RUNNING, SUCCEEDED), output={0: [b"he", b"llo\n\xff no newline"]}
    )
    result = cluster.run("run", "true")
    assert result.exit_code == 0
    assert result.stdout_bytes == b"hello\n\xff no newline"
    assert result.stderr.splitlines() == [
        "train (01kaec7m) accepted",
        "train running",
        "train succeeded after 1m03s",
    ]


def test_run_when_quiet_is_its_output_alone() -> None:
    cluster = FakeCluster(play=life(PENDING, RUNNING, SUCCEEDED), output={0: [b"x\n"]})
    result = cluster.run("run", "-q", "true")
    assert (result.stdout, result.stderr) == ("x\n", "")


def test_run_ends_with_the_failed_tasks_code_and_says_why() -> None:
    exited = because(ReasonCode.EXITED, exit_code=3)
    cluster = FakeCluster(
        play=life(PENDING, RUNNING, FAILED),
        tasks_=[task(0, TaskState.FAILED, (kernel(exit_code=3),), exit_code=3, reason=exited)],
        output={0: [b"oh\n"]},
    )
    result = cluster.run("run", "-q", "false")
    assert result.exit_code == 3
    assert result.stderr == "train failed after 1m03s: exited with code 3\n"


def test_run_of_several_tasks_tells_their_lines_apart() -> None:
    cluster = FakeCluster(
        play=life(PENDING, SUCCEEDED, tasks=3),
        output={index: [b"a%d\nb%d" % (index, index)] for index in range(3)},
    )
    result = cluster.run("run", "-q", "-n", "3", "true")
    assert sorted(result.stdout.splitlines()) == [
        "0 | a0", "0 | b0", "1 | a1", "1 | b1", "2 | a2", "2 | b2",
    ]  # fmt: skip


def test_run_of_some_of_the_tasks_follows_those() -> None:
    counts = {TaskState.SUCCEEDED: 5}
    spec = {"command": ["true"], "tasks": 101, "only": "0,25,50,75,100"}
    some = [
        job(state=state, counts=counts, task_count=101, spec=spec) for state in (PENDING, SUCCEEDED)
    ]
    output = {index: [b"x\n"] for index in range(0, 101, 25)}
    cluster = FakeCluster(jobs_=some[:1], play=some, output=output)
    result = cluster.run("run", "-q", "-n", "101", "--only", "0-100:25", "true")
    assert sorted(result.stdout.splitlines()) == [
        "  0 | x", " 25 | x", " 50 | x", " 75 | x", "100 | x",
    ]  # fmt: skip
    assert (result.exit_code, result.stderr.count("not shown")) == (0, 0)


@pytest.mark.parametrize("short", [range(0), range(5, 20, 3)])
def test_run_shows_the_output_of_all_of_its_tasks(short: range) -> None:
    """Also of those that are not followed before the job has ended."""
    cluster = FakeCluster(
        play=life(PENDING, SUCCEEDED, tasks=20),
        output={index: [b"a%d\n" % index] for index in range(20)},
        short=frozenset(short),
    )
    result = cluster.run("run", "-q", "-n", "20", "true")
    assert sorted(result.stdout.splitlines()) == sorted(f"{each:2} | a{each}" for each in range(20))
    assert result.stderr == ""


def test_run_of_very_many_tasks_follows_a_few_and_shows_the_end_of_the_one_that_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(follow, "MAX_SHOWN", 199)
    ended = job(state=FAILED, counts={TaskState.SUCCEEDED: 199, TaskState.FAILED: 1})
    cluster = FakeCluster(
        play=[*life(PENDING, tasks=200), ended],
        tasks_=[task(150, TaskState.FAILED, exit_code=9)],
        output={index: [b"x\n"] for index in range(200)} | {150: [b"line\n" * 100]},
    )
    result = cluster.run("run", "-q", "-n", "200", "true")
    assert result.exit_code == 9
    assert "the first 8 of 200 tasks" in result.stderr
    assert result.stdout.count(" | x\n") == follow.MAX_FOLLOWED
    assert result.stdout.count("150 | line\n") == follow.FAILED_TAIL_LINES


def test_run_shows_whole_lines_of_the_one_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "MAX_SHOWN", 199)
    ended = job(state=FAILED, counts={TaskState.SUCCEEDED: 199, TaskState.FAILED: 1})
    long = b"x" * 9_000 + b"\n"
    cluster = FakeCluster(
        play=[*life(PENDING, tasks=200), ended],
        tasks_=[task(150, TaskState.FAILED, exit_code=9)],
        output={index: [] for index in range(200)} | {150: [long * 30]},
    )
    result = cluster.run("run", "-q", "-n", "200", "true")
    assert result.stdout_bytes == (b"150 | " + long) * follow.FAILED_TAIL_LINES


def test_run_says_why_the_job_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "ASK_WHY_AFTER_S", 0.0)
    monkeypatch.setattr(follow, "TICK_S", 0.01)
    told = threading.Event()
    no_room = because(ReasonCode.NO_ROOM, agents=1, group="default", request="8 gpu")

    class Telling(FakeCluster):
        def why(self, ref: str) -> WhyView:
            told.set()
            return WhyView(subject=ref, status="PENDING", verdict="", reasons=(no_room,))

    cluster = Telling(
        play=life(PENDING, SUCCEEDED), output={0: []}, at_start=lambda: assert_set(told)
    )
    result = cluster.run("run", "true")
    assert f"train waits: {no_room.sentence}" in result.stderr


def test_run_does_not_repeat_a_reason_of_which_the_time_alone_has_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(follow, "ASK_WHY_AFTER_S", 0.0)
    monkeypatch.setattr(follow, "ASK_WHY_EVERY_S", 0.0)
    monkeypatch.setattr(follow, "TICK_S", 0.01)
    told = threading.Event()

    class Telling(FakeCluster):
        left_s = 1800

        def why(self, ref: str) -> WhyView:
            self.left_s -= 5
            if self.left_s < 1780:
                told.set()
            checks = because(
                ReasonCode.RECOVERY_CHECKS,
                index=0,
                agent="agent-1",
                agents=1,
                pending=1,
                in_s=self.left_s,
            )
            return WhyView(subject=ref, status="PENDING", verdict="", reasons=(checks,))

    cluster = Telling(
        play=life(PENDING, SUCCEEDED), output={0: []}, at_start=lambda: assert_set(told)
    )
    result = cluster.run("run", "true")
    assert result.stderr.count("train waits: ") == 1


def assert_set(event: threading.Event) -> None:
    assert event.wait(10.0)


def test_run_of_a_job_that_never_started_does_not_miss_its_output() -> None:
    cluster = FakeCluster(play=life(PENDING, JobState.UNSCHEDULABLE))
    result = cluster.run("run", "true")
    assert result.exit_code == 1
    assert "not shown" not in result.stderr


def test_run_says_when_output_cannot_be_shown() -> None:
    class Unreadable(FakeCluster):
        def logs(self, ref: str, **_: object) -> Iterator[bytes]:
            raise MusterError("agent a1 is not connected")

    result = Unreadable(play=life(PENDING, SUCCEEDED)).run("run", "-q", "true")
    assert result.exit_code == 0
    assert result.stderr == "the output of task 0 is not shown: agent a1 is not connected\n"


def test_run_ends_when_the_job_has_although_its_output_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(follow, "DRAIN_S", 0.1)
    stuck = threading.Event()

    class Stuck(FakeCluster):
        def logs(self, ref: str, **_: object) -> Iterator[bytes]:
            yield b"some\n"
            stuck.wait(20.0)

    result = Stuck(play=life(PENDING, SUCCEEDED)).run("run", "true")
    stuck.set()
    assert result.exit_code == 0
    assert "output may be missing" in result.stderr


def test_run_that_can_no_longer_be_watched_is_an_error() -> None:
    class Gone(FakeCluster):
        def wait(self, *_: object, **__: object) -> JobDetail:
            raise MusterError("no controller answers")

    result = Gone(play=life(PENDING)).run("run", "true")
    assert result.exit_code == 1
    assert "no controller answers" in result.stderr


class Restarting(FakeCluster):
    """Its controller goes away while the job is watched; ``returns`` is what happens then."""

    def __init__(self, returns: Callable[[OnContact], None]) -> None:
        super().__init__(jobs_=life(RUNNING), play=life(RUNNING, SUCCEEDED), output={0: [b"x\n"]})
        self.returns = returns

    def wait(self, *_: object, **__: object) -> JobDetail:
        heard = self.heard[threading.get_ident()]
        heard(False)
        self.returns(heard)
        return self.play[-1]


def test_run_says_once_that_the_controller_is_away_and_once_that_it_is_back() -> None:
    cluster = Restarting(lambda heard: heard(True))
    result = cluster.run("run", "-q", "true")
    assert (result.exit_code, result.stdout) == (0, "x\n")
    assert result.stderr.splitlines() == [
        f"no controller answers at {cluster.url}; still trying (Ctrl-C leaves the job alone)",
        f"the controller at {cluster.url} answers again",
    ]


def test_run_whose_controller_stays_away_fails_and_says_how_to_start_it() -> None:
    def never(_: OnContact) -> None:
        raise Unreachable("no controller answers at http://x; `muster up` starts one")

    result = Restarting(never).run("run", "true")
    assert result.exit_code == 1
    assert "`muster up` starts one; nothing is lost" in result.stderr


def test_interrupt_while_the_controller_is_away_leaves_the_job_alone() -> None:
    let_go = threading.Event()

    def interrupted(_: OnContact) -> None:
        interrupt()
        let_go.wait(20.0)

    cluster = Restarting(interrupted)
    result = cluster.run("run", "true")
    let_go.set()
    assert result.exit_code == 130
    assert not [each for each in cluster.asked if each[0] == "cancel"]
    assert "train is left alone" in result.stderr


def test_connections_that_lose_the_controller_together_report_it_once() -> None:
    cluster = FakeCluster()
    connector = Cluster(connector=cluster.connect)
    both_away, both_back = threading.Barrier(2), threading.Barrier(2)

    def lose_and_find(client: Client) -> Iterator[bytes]:
        heard = cluster.heard[threading.get_ident()]
        heard(False)
        both_away.wait(10.0)
        heard(True)
        both_back.wait(10.0)
        yield b""

    with Feed(connector) as feed:
        for task_ in range(2):
            feed.follow_task(lose_and_find, task_)
        events = [feed.next(10.0) for _ in range(6)]
    contact = [event for event in events if isinstance(event, Away | Back)]
    assert contact == [Away(cluster.url), Back(cluster.url)]


def test_run_whose_tasks_cannot_be_read_at_the_end_still_says_how_it_ended() -> None:
    class Gone(FakeCluster):
        def tasks(self, *_: object, **__: object) -> TaskPage:
            raise Unreachable("no controller answers")

    result = Gone(play=life(RUNNING, FAILED), output={0: []}).run("run", "-q", "false")
    assert result.exit_code == 1
    assert "how its tasks ended cannot be read: no controller answers" in result.stderr
    assert "train failed" in result.stderr


def test_submitted_session_that_is_waited_for_says_that_the_controller_is_away() -> None:
    class Restarted(FakeCluster):
        def session(self, ref: str) -> SessionDetail:
            heard = self.heard[threading.get_ident()]
            heard(False)
            heard(True)
            return super().session(ref)

    cluster = Restarted(sessions_=[session(kernels=(kernel(exit_code=3),))])
    result = cluster.run(
        "submit", "--wait", "-", stdin="kind: session\nkernels: [{command: [date]}]"
    )
    assert result.exit_code == 3
    away, back, end = result.stderr.splitlines()
    assert [away, back] == [away_line(cluster.url), back_line(cluster.url)]
    assert end.split()[1] == "terminated"


def test_submit_wait_shows_progress_and_no_output() -> None:
    cluster = FakeCluster(play=life(PENDING, SUCCEEDED), output={0: [b"x\n"]})
    result = cluster.run("submit", "-", "--wait", stdin="command: [date]")
    assert (result.exit_code, result.stdout) == (0, f"train ({IDS[0]})\n")
    assert "train succeeded" in result.stderr
