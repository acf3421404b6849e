"""Operators' settings files: a problem names the file that it is in."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from muster.control.deployment.publishing import settings as traffic
from muster.control.health.rebooting import settings as health
from muster.control.notice import settings as notices
from muster.core.errors import InvalidSpec

FILES = [(each.FILE, each.load_settings) for each in (notices, health, traffic)]


@pytest.mark.parametrize(("file", "load"), FILES)
@pytest.mark.parametrize("content", ["a: [", "- x", "", "unheard: 1", "kind: job"])
def test_problem_names_its_file(
    file: str, load: Callable[[Path | None], Any], content: str, tmp_path: Path
) -> None:
    (tmp_path / file).write_text(content)
    with pytest.raises(InvalidSpec) as refused:
        load(tmp_path)
    assert all(problem.field.startswith(f"{file}: ") for problem in refused.value.problems)


@pytest.mark.parametrize(("file", "load"), FILES)
def test_file_that_is_not_there_means_the_defaults(
    file: str, load: Callable[[Path | None], Any], tmp_path: Path
) -> None:
    assert load(tmp_path) == load(None), file
