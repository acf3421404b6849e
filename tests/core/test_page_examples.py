"""The examples of all pages: specs are accepted, settings are read, commands are known.

``tests/e2e/test_page_examples.py`` runs those that are work.
"""

import ast
import json
import re
import shlex
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from muster.cli.program import app
from muster.control.deployment.publishing import settings as traffic
from muster.control.engine.settings_file import load_settings_file
from muster.control.health.rebooting import settings as health
from muster.control.notice import settings as notices
from muster.core.specs import DeploymentSpec, JobSpec, SessionSpec
from muster.core.specs.load import models, spec_of
from muster.core.specs.session import Process
from muster.simulate.cluster_file import read_cluster

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
FILE_OF_ITS_OWN = re.compile(r"^(?!/)[\w./-]+\.(py|sh)$|^\./")
"""An argument that names a file of the directory in which the program runs."""
NOT_PYTHON = {"architecture.md"}
"""Pages with lines of several files beside each other."""


def read_by(module: Any) -> Callable[[str, Path], object]:
    def read(text: str, folder: Path) -> object:
        (folder / module.FILE).write_text(text)
        return module.load_settings(folder)

    return read


def read_traffic(text: str, folder: Path) -> object:
    """Settings of balancers; files that they name need not be there."""
    (folder / traffic.FILE).write_text(text)
    return load_settings_file(traffic.TrafficSettings, folder / traffic.FILE)


def read_agents(text: str, folder: Path) -> object:
    (folder / "cluster.yaml").write_text(text)
    return read_cluster(folder / "cluster.yaml")


def read_in_pool(text: str, folder: Path) -> object:
    whole = {"kind": "pool", "name": "p", "machine": {"cpu": 1, "memory": "1GiB"}, "max_slices": 1}
    provider = {"provider": "kubernetes"}
    return spec_of(whole | provider | yaml.safe_load(text))


def read_by_others(text: str, folder: Path) -> object:
    return yaml.safe_load(text)


OTHERS: Mapping[str, Callable[[str, Path], object]] = {
    "reboot_command": read_by(health),
    "schemes": read_by(notices),
    "hosts": read_traffic,
    "agents": read_agents,
    "kind: cluster": read_agents,
    "provider": read_in_pool,
    "settings": read_in_pool,
    "apiVersion": read_by_others,
    "services": read_by_others,
}
"""The readers of examples that are no specs, by the first key of each."""


def examples(*languages: str) -> Iterator[tuple[str, str]]:
    """The examples in these languages, with the place of each."""
    for page in PAGES:
        text = page.read_text()
        for found in FENCE.finditer(text):
            if found[1] in languages:
                line = text.count("\n", 0, found.start()) + 1
                yield f"{page.name}:{line}", found[2]


def documents() -> list[tuple[str, str]]:
    return [
        (place, document)
        for place, text in examples("yaml")
        for document in re.split(r"^---\n", text, flags=re.MULTILINE)
    ]


def as_handed_in(keys: Mapping[str, Any]) -> dict[str, Any]:
    """The keys with what the client puts in place of directories and files of the caller's."""
    found = dict(keys)
    if found.get("workdir") == ".":
        found["workdir"] = "/here"
    if isinstance(found.get("matrix"), str):
        found["matrix"] = [{"line": "a"}, {"line": "b"}]
    return found


def is_spec(keys: Mapping[str, Any]) -> bool:
    return "command" in keys or keys.get("kind") in models()


def work() -> Iterator[tuple[str, JobSpec | SessionSpec | DeploymentSpec]]:
    """The examples that are work, with the place of each."""
    for place, text in documents():
        keys = yaml.safe_load(text)
        if is_spec(keys):
            spec = spec_of(as_handed_in(keys))
            if isinstance(spec, JobSpec | SessionSpec | DeploymentSpec):
                yield place, spec


@pytest.mark.parametrize(("place", "text"), documents())
def test_example_in_yaml_is_read(place: str, text: str, tmp_path: Path) -> None:
    keys = yaml.safe_load(text)
    if is_spec(keys):
        spec_of(as_handed_in(keys))
        return
    first = next(iter(keys))
    reader = OTHERS.get(first) or OTHERS[f"{first}: {keys[first]}"]
    assert reader(text, tmp_path) is not None


def processes(spec: JobSpec | SessionSpec | DeploymentSpec) -> list[Process]:
    return [*spec.kernels] if isinstance(spec, SessionSpec) else [spec]


def test_work_whose_program_is_in_a_file_says_where_that_is() -> None:
    """Without a workdir each kernel begins in an empty directory of its own."""
    found, lost = 0, []
    for place, spec in work():
        for process in processes(spec):
            words = " ".join(process.command).split()
            if any(map(FILE_OF_ITS_OWN.search, words)):
                found += 1
                if process.workdir is None and not process.files:
                    lost.append(place)
    assert found >= 5
    assert lost == []


def test_gang_of_torchrun_has_a_kernel_a_machine() -> None:
    found = 0
    for place, spec in work():
        if isinstance(spec, JobSpec) and "torchrun" in " ".join(spec.command):
            found += 1
            assert spec.coscheduled, place
            assert spec.placement.max_kernels_per_agent == 1, place
    assert found >= 2


def test_examples_in_other_languages_are_written_in_them() -> None:
    counts = dict.fromkeys(("json", "toml", "python"), 0)
    for language, read in (("json", json.loads), ("toml", tomllib.loads), ("python", ast.parse)):
        for place, text in examples(language):
            if language == "python" and place.partition(":")[0] in NOT_PYTHON:
                continue
            assert read(text) is not None, place
            counts[language] += 1
    assert min(counts.values()) >= 1
    assert counts["python"] >= 10


def typed() -> Iterator[tuple[str, list[str]]]:
    """The commands of ``muster`` that pages show, with the place of each: their words up to a pipe
    or the like."""
    for place, text in examples("", "console", "sh"):
        for line in text.splitlines():
            begin = re.match(r"(?:\S*\$ )?muster (?=[a-z-])", line)
            if begin is None or "──" in line or "[" in line:
                continue
            reader = shlex.shlex(line[begin.end() :], posix=True, punctuation_chars="|&;<>()")
            reader.whitespace_split, reader.commenters = True, "#"
            words: list[str] = []
            try:
                for word in reader:
                    if re.fullmatch(r"[|&;<>()]+", word):
                        break
                    words.append(word)
            except ValueError:  # a quotation that goes on in the next line
                continue
            yield f"{place}: {line}", words


def check(command: click.Command, name: str, words: list[str], above: click.Context | None) -> None:
    """
    Raises:
        click.UsageError: there is no such command or option.
    """
    context = command.make_context(name, words, parent=above)
    if isinstance(command, click.Group):
        rest = [*context._protected_args, *context.args]
        if not rest and command.invoke_without_command:
            return
        found, below, rest = command.resolve_command(context, rest)
        assert below is not None
        check(below, found or name, rest, context)


def test_commands_of_pages_are_understood() -> None:
    wrong, count = {}, 0
    for place, words in typed():
        try:
            check(app, "muster", words, None)
        except click.exceptions.Exit:  # it was asked for its help
            pass
        except click.ClickException as error:
            wrong[place] = error.format_message()
        count += 1
    assert count > 60
    assert wrong == {}
