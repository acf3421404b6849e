"""A controller's data directory: its place, and its settings."""

from pathlib import Path

import pytest

from muster.app.account_options import AccountOptions
from muster.app.home import Home, LocalAgentSettings, LocalProxy, Settings, UnusableHome


def test_settings_come_back_as_they_were_written(tmp_path: Path) -> None:
    home = Home(tmp_path)
    assert home.settings() == Settings()
    agents = LocalAgentSettings(
        count=2,
        cpus="4",
        attributes={"rack": "r1"},
        accounts=AccountOptions(mapped={"ada": "ada"}, pids_max=100),
    )
    written = Settings(port=7700, agents=agents, proxy=LocalProxy(False), database="postgresql://x")
    home.write_settings(written)
    assert home.settings() == written


@pytest.mark.parametrize("content", ["", "{", "[]", '{"agents": 2}', '{"agents": {"count": "2"}}'])
def test_damaged_settings_are_refused_and_not_replaced_by_the_defaults(
    content: str, tmp_path: Path
) -> None:
    (tmp_path / "settings.json").write_text(content)
    with pytest.raises(UnusableHome, match=r"settings\.json is damaged .*remove it"):
        Home(tmp_path).settings()


@pytest.mark.parametrize("path", ["/proc/x", "/proc/x/y", "/sys/x", "/dev/null"])
def test_place_where_no_directory_can_be_made_is_refused(path: str) -> None:
    with pytest.raises(UnusableHome, match=f"cannot use {path} as data directory: "):
        Home(Path(path)).create()
