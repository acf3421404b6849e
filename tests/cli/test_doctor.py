"""What `muster doctor` says of a home."""

from pathlib import Path

from muster.app.doctor import checks
from muster.app.home import Home, Running


def test_controller_that_died_is_named_with_what_to_do(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.write_running(Running(4242, "http://127.0.0.1:7600", "127.0.0.1:7601", "1.0", 0.0))
    (check,) = [check for check in checks(tmp_path) if check.name == "controller"]
    assert (check.ok, check.detail) == (False, "died (process 4242, http://127.0.0.1:7600)")
    assert check.remedy == "run `muster up` again: nothing is lost"
