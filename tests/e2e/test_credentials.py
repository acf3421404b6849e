"""A local agent whose credential is damaged or gone is let in again, and loses none of its work."""

import json

from tests.e2e.cluster import client_of
from tests.patience import until

from muster.app.home import Home
from muster.app.local import UpOptions, down, up


def test_local_agent_heals_from_a_damaged_a_wrong_and_a_missing_credential(home: Home) -> None:
    up(UpOptions(home.path, agents=1))
    file = home.agent_directory("agent-1") / "credential.json"
    with client_of(home) as cluster:
        job = cluster.submit(command="echo before; sleep 1000")
        until(lambda: cluster.job(job.id).state == "RUNNING")
        kernel = cluster.task(job.id, 0).kernel_id
        (agent,) = cluster.agents()
    wrong = json.dumps({"agent": agent.id, "credential": "x" * 43})
    never_answered = json.dumps({"agent": "", "credential": "x" * 43})
    for text in (file.read_text()[:20], wrong, never_answered, None):
        down(home.path, keep_kernels=True)
        file.unlink()
        if text is not None:
            file.write_text(text)
        up(UpOptions(home.path))
        with client_of(home) as cluster:
            until(lambda: [each.connected for each in cluster.agents()] == [True])
            assert [each.id for each in cluster.agents()] == [agent.id]
            task = cluster.task(job.id, 0)
            assert (task.kernel_id, task.state, task.attempt) == (kernel, "RUNNING", 1)
    with client_of(home) as cluster:
        cluster.cancel(job.id)
        assert b"".join(cluster.logs(job.id)) == b"before\n"
    assert "it was given another" in home.log.read_text()
