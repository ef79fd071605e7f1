"""Who may look into a queue, and what its content can do to who reads it: nothing."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import stat
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from disk import FIXTURES, Ticks, copied, digest_of, lines, seal, segments
from terminal import COMMAND, environment, eventq

from eventq import EventqError, Retry, WorkQueue

TOP = Path(__file__).parent.parent


def modes(path: Path) -> dict[str, int]:
    """The permissions of all that stands in a queue, but for what its tasks have made."""
    return {
        str(file.relative_to(path)): stat.S_IMODE(file.stat().st_mode)
        for file in [path, *path.rglob("*")]
        if file.parent.name != "work"
    }


def openly(*words: object) -> None:
    """Run a command line in a process that lets everybody look at what it makes."""
    subprocess.run(
        ["sh", "-c", 'umask 0; exec "$@"', "sh", *COMMAND, *map(str, words)],
        env=environment(),
        check=False,
        capture_output=True,
        timeout=60,
    )


def test_only_the_owner_may_look_into_what_commands_make(tmp_path: Path) -> None:
    """Whatever the umask says: runs and what they print, snapshots, the archive, a copy."""
    flow = tmp_path / "flow.toml"
    flow.write_text(
        '[tasks.a]\nargv = ["sh", "-c", "echo secret"]\n'
        '[tasks.b]\nargv = ["sh", "-c", "echo secret >&2; exit 1"]\n'
    )
    path, attic, copy = tmp_path / "q", tmp_path / "attic", tmp_path / "copy"
    openly("run", flow, "--queue", path)
    openly("work", "--queue", path, "--drain")
    openly("snapshot", "--queue", path)
    assert {"log", "snapshots", "output", "lock", "run.lock"} <= {f.name for f in path.iterdir()}
    assert any("secret" in file.read_text() for file in (path / "output").iterdir())
    with WorkQueue.open(path, segment_bytes=1) as q:
        q.pause()
        q.resume()
    openly("archive", "--queue", path, "--to", attic)
    assert (path / "archived.jsonl").exists()
    damaged = copied(FIXTURES / "bit-flipped", tmp_path / "damaged")
    openly("repair", "--queue", damaged, "--to", copy)
    for folder in (path, attic, copy):
        found = modes(folder)
        assert len(found) > 1
        for name, mode in found.items():
            assert mode == (0o700 if (folder / name).is_dir() else 0o600), f"{folder}/{name}"


# Nothing in a log is executed, unpickled or imported.


class Exploding:
    """Unpickled, it would leave a file."""

    def __reduce__(self) -> Any:
        return exec, ("open('pwned', 'w')",)


HOSTILE = [
    "__import__('os').system('touch pwned')",
    "$(touch pwned)",
    "`touch pwned`; touch pwned | touch pwned",
    "{open('pwned', 'w')}",
    "%(x)s {0.__class__.__init__.__globals__}",
    "!!python/object/apply:os.system ['touch pwned']",
    "../../../pwned",
    "/etc/passwd",
    "eventq.core.events.Opened",
    "os:system",
    pickle.dumps(Exploding(), 0).decode("latin-1").replace("\n", " "),
]


TAME = [f"text {i}" for i in range(len(HOSTILE))]


def queue_of(path: Path, texts: list[str]) -> Path:
    """A queue that has these texts in every place where a text can be."""
    with WorkQueue.open(
        path, retry=Retry(max_attempts=1), record=True, clock=Ticks(), segment_bytes=2000
    ) as q:
        for i, text in enumerate(texts):
            payload = {text: text, "py/object": "os.system", "__reduce__": ["os.system", [text]]}
            q.enqueue(text, payload, key=text, after=[texts[i - 1]] if i % 2 else ())
            lease = q.start(text)
            if lease is not None and i % 3:
                q.fail(lease, text, by=text)
            elif lease is not None:
                q.complete(lease, payload)
            q.pause(why=text, by=text)
            q.resume()
        q.snapshot()
    return path


def forged(path: Path, old: bytes, new: bytes) -> None:
    """Change the last line, and put its hash right."""
    file = segments(path)[-1]
    *before, last = lines(path)
    body = last[:-77].replace(old, new)
    assert body != last[:-77]
    text = file.read_bytes().removesuffix(last)
    file.write_bytes(text + seal(body, digest_of(before[-1])))


WATCHED = """
import sys
from pathlib import Path
sys.path[:0] = [{tests!r}]
from terminal import eventq
from eventq import WorkQueue

seen = []
calls = ("exec", "compile", "import", "pickle", "marshal", "os.system", "os.exec", "os.spawn",
    "os.posix_spawn", "os.fork", "subprocess", "socket", "code.__new__", "ctypes.dlopen", "open")
WATCHING = False

def watch(event, args):
    if WATCHING and event.startswith(calls):
        if event == "open":
            name = args[0]
            if isinstance(name, int) or str(name).startswith(({queue!r}, "/dev/null", "/proc/")):
                return
        if "<cattrs generated " in repr(args):  # of our own classes, now and then
            return
        seen.append((event, repr(args)[:200]))

def read(path):
    for words in (["status"], ["dlq"], ["dlq", "--list"], ["log"], ["log", "--json"], ["verify"],
            ["history", "x"], ["why", "x"], ["at", "5"], ["head"]):
        for more in ([], ["--json"]):
            eventq(*words, "--queue", path, *more)
    try:
        with WorkQueue.open(path, read_only=True) as q:
            for task in q.state.tasks():
                repr((task.payload, task.result, task.error, q.state.reason(task.id)))
            list(q.entries())
            q.at(3)
    except Exception as error:
        str(error)

sys.addaudithook(watch)
for tame in {tame!r}:
    read(Path(tame))
WATCHING = True
read(Path({queue!r}))
WATCHING = False
for one in seen:
    print(*one)
"""


def watched(queue: Path, *tame: Path) -> str:
    """What reading this queue had the interpreter do that reading those had not."""
    script = WATCHED.format(
        tests=str(TOP / "tests"), queue=str(queue), tame=[str(path) for path in tame]
    )
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        env=environment(),
        capture_output=True,
        text=True,
        cwd=queue.parent,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


FORGED: dict[str, tuple[bytes, bytes, bytes]] = {
    # What is replaced in the last line, by what, and by what tame thing of the same kind.
    "as it is": (b"", b"", b""),
    "type": (
        b'"type":"resumed"',
        b"\"type\":\"__import__('os').system('touch pwned')\"",
        b'"type":"exploded"',
    ),
    "class": (
        b'"type":"resumed"',
        b'"type":"eventq.core.events.Opened","py/object":"os.system"',
        b'"type":"exploded","how":"loudly"',
    ),
    "command": (b'"do":"resume"', b'"do":"os:system"', b'"do":"snatch"'),
    "ask": (
        b'"ask":{}',
        b'"ask":{"__class__":"os.system","command":"touch pwned"}',
        b'"ask":{"mood":"good","weather":"fair"}',
    ),
    "policy": (
        b'{"type":"resumed"}',
        b'{"type":"reconfigured","policy":{"__reduce__":["os.system",["touch pwned"]]}}',
        b'{"type":"reconfigured","policy":{"mood":["good",["fair"]]}}',
    ),
}


@pytest.mark.parametrize("name", FORGED)
def test_nothing_in_a_log_is_executed_unpickled_or_imported(name: str, tmp_path: Path) -> None:
    """Nor is any file opened by a name that stands in it: the interpreter itself was watched."""
    path, tame = queue_of(tmp_path / "q", HOSTILE), queue_of(tmp_path / "tame", TAME)
    old, bad, good = FORGED[name]
    for folder, new in ((path, bad), (tame, good)):
        if old:
            forged(folder, old, new)
    if name == "as it is":
        max((path / "snapshots").iterdir()).write_bytes(pickle.dumps(Exploding()))
        max((tame / "snapshots").iterdir()).write_bytes(b"no snapshot")
    assert watched(path, tame) == ""
    assert not list(tmp_path.rglob("pwned"))
    if name != "ask":
        assert eventq("log", "--queue", path).code in (0, 6, 9)


def test_the_watch_sees_what_it_is_for(tmp_path: Path) -> None:
    """Else the test above would prove nothing."""
    path = queue_of(tmp_path / "q", HOSTILE)
    assert "exec " in watched(path)


def test_no_file_is_named_by_a_caller(tmp_path: Path) -> None:
    """Ids, keys and workers are in the lines alone."""
    path = queue_of(tmp_path / "q", HOSTILE)
    names = {file.name for file in tmp_path.rglob("*")}
    assert {name for name in names if not name.removesuffix(".jsonl").isdigit()} == {
        *("q", "log", "lock", "snapshots", "redo"),
    }
    with WorkQueue.open(path, read_only=True) as q:
        assert {task.id for task in q.state.tasks()} == set(HOSTILE)
        assert json.dumps([task.payload for task in q.state.tasks()])
    shutil.rmtree(path)
    with pytest.raises(EventqError):
        WorkQueue.open(path, read_only=True)


@pytest.mark.parametrize("segment", [0, -1])
def test_a_segment_that_is_no_file_is_not_read(tmp_path: Path, segment: int) -> None:
    """A pipe, from which nothing ever comes, and a device, from which too much does."""
    path = tmp_path / "q"
    with WorkQueue.open(path, segment_bytes=1_000) as q:
        for n in range(9):
            q.enqueue(f"t{n}")
    file = segments(path)[segment]
    for put in (os.mkfifo, lambda file: file.symlink_to("/dev/zero")):
        file.unlink()
        put(file)
        for command in ("verify", "tick"):
            ran = subprocess.run(
                [*COMMAND, command, "--queue", path],
                env=environment(),
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            assert ran.returncode == 6
            assert "neither a pipe nor a device" in ran.stdout + ran.stderr
            assert file.name in ran.stdout + ran.stderr


def test_a_lock_that_is_no_file_is_not_taken(tmp_path: Path) -> None:
    """It has no size, which tells of segments."""
    path = tmp_path / "q"
    with WorkQueue.open(path) as q:
        q.enqueue("a")
    (path / "lock").unlink()
    os.mkfifo(path / "lock")
    with pytest.raises(OSError, match=r"neither a pipe nor a device.*q/lock'"):
        WorkQueue.open(path)


def test_a_snapshot_that_is_no_file_is_passed_over(tmp_path: Path) -> None:
    """As one that does not fit."""
    path = tmp_path / "q"
    with WorkQueue.open(path) as q:
        q.enqueue("a")
        snapshot = q.snapshot()
    snapshot.unlink()
    os.mkfifo(snapshot)
    ran = subprocess.run(
        [*COMMAND, "status", "--queue", path],
        env=environment(),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0
