"""Settings of operators about notices."""

from pathlib import Path

import pytest

from muster.control.notice.settings import FILE, SERVICES, load_settings
from muster.core.errors import InvalidSpec


def written(folder: Path, text: str) -> Path:
    (folder / FILE).write_text(text)
    return folder


def test_without_a_file_the_well_known_services_may_be_used(tmp_path: Path) -> None:
    for folder in (None, tmp_path):
        settings = load_settings(folder)
        assert settings.schemes == SERVICES
        assert settings.allows("HTTPS://hooks.example.org/x")
        assert not settings.allows("syslog://x")


@pytest.mark.parametrize("on_loopback", [True, False])
def test_own_machine_and_private_networks_follow_the_controllers_address(
    tmp_path: Path, on_loopback: bool
) -> None:
    reach = load_settings(tmp_path).reach(on_loopback=on_loopback)
    assert (reach.loopback, reach.private) == (on_loopback, on_loopback)
    reach = load_settings(written(tmp_path, "private: true\nloopback: false\n")).reach(
        on_loopback=on_loopback
    )
    assert (reach.loopback, reach.private) == (False, True)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("schemes: [json, syslog]", "syslog"),
        ("schemes: [JSON]", "schemes.0"),
        ("services: [json]", "services"),
        ("private: maybe", "true or false"),
        ("- json", "expected keys"),
    ],
)
def test_wrong_settings_are_refused_with_what_is_wrong(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(InvalidSpec, match=why):
        load_settings(written(tmp_path, text))
