"""The README is true: every block of it does what it says.

The first two blocks, which install into a fresh virtual environment, are run as they are printed
by `.ci/run`; every other block is run here, each complete in itself, in a directory that holds
nothing but `fixtures/`.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from eventq.cli.flow import read_flow
from eventq.core.lifecycle import picture
from eventq.storage.codec import decode, encode

TOP = Path(__file__).parent.parent
README = (TOP / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README, flags=re.DOTALL | re.MULTILINE)
COMMANDS = [text for kind, text in BLOCKS if kind == "sh"]


def of_kind(kind: str) -> list[str]:
    """The blocks of one language; there is at least one."""
    found = [text for language, text in BLOCKS if language == kind]
    assert found
    return found


@pytest.fixture
def beside_fixtures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory like a fresh clone, in which the commands of this installation are found."""
    shutil.copytree(TOP / "fixtures", tmp_path / "fixtures")
    (tmp_path / "bin").mkdir()
    eventq = tmp_path / "bin" / "eventq"
    eventq.write_text(f'#!/bin/sh\nexec {sys.executable} -m eventq.cli.main "$@"\n')
    eventq.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(TOP))
    monkeypatch.setenv("LOGNAME", "ann")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def shell(text: str) -> subprocess.CompletedProcess[str]:
    """Run this in a shell."""
    return subprocess.run(["bash", "-euo", "pipefail", "-c", text], capture_output=True, text=True)


def alike(text: str, here: Path) -> list[str]:
    """The lines without what differs from run to run: times, process ids, hashes, this place."""
    text = text.replace(str(here), "/home/ann")
    for pattern, instead in (
        (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ", "TIME"),
        (r"\b\d+(\.\d)? s\b", "SECONDS"),
        (r"runner/\d+", "runner/PID"),
        (r"\b[0-9a-f]{64}\b", "HASH"),
        (r" +", " "),
    ):
        text = re.sub(pattern, instead, text)
    return [line.rstrip() for line in text.splitlines() if line.strip()]


def test_the_first_two_blocks_are_the_main_job_and_the_tests() -> None:
    """In this order, since `.ci/run` runs them as printed."""
    assert "eventq run fixtures/flows/" in COMMANDS[0]
    assert "pytest" in COMMANDS[1]


@pytest.mark.parametrize("text", COMMANDS[2:])
def test_a_shell_block_runs(text: str, beside_fixtures: Path) -> None:
    """Every later shell block ends well."""
    done = shell(text)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("text", of_kind("console"))
def test_a_console_block_prints_what_it_shows(text: str, beside_fixtures: Path) -> None:
    """Each command after a `$` prints the lines that follow it, but for times and the like."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, shown = part.partition("\n")
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
        assert alike(done.stdout + done.stderr, beside_fixtures) == alike(shown, beside_fixtures)


@pytest.mark.parametrize("text", of_kind("python"))
def test_a_python_block_runs(text: str, beside_fixtures: Path) -> None:
    """Its assertions hold."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", text], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("text", of_kind("toml"))
def test_a_flow_that_is_shown_is_one(text: str, tmp_path: Path) -> None:
    """It reads as a flow."""
    assert tomllib.loads(text)
    flow = tmp_path / "flow.toml"
    flow.write_text(text, encoding="utf-8")
    assert read_flow(flow)


@pytest.mark.parametrize("text", of_kind("json"))
def test_a_line_that_is_shown_is_one(text: str) -> None:
    """It reads as an entry, and is spelled as the log would spell it."""
    line = text.encode()
    entry = decode(line)
    body = encode(entry, b"0" * 64, first=False)[0]
    assert json.loads(line) | {"hash": ""} == json.loads(body) | {"hash": ""}
    assert body[:-76] == line[:-76]


def test_the_picture_is_that_of_the_table() -> None:
    """The lifecycle in the README is generated from the table."""
    assert of_kind("mermaid") == [picture() + "\n"]
