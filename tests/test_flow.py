"""The flow file: what is read, and that whatever is wrong with one is said with its place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eventq import Enqueue
from eventq.cli.exits import FlowError
from eventq.cli.flow import Spec, read_flow, spec_of

FLOWS = Path(__file__).parent.parent / "fixtures" / "flows"


def flow(folder: Path, text: str | bytes, name: str = "flow.toml") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def problems(path: Path) -> list[str]:
    """What is wrong with this flow, without the name of its file."""
    with pytest.raises(FlowError) as caught:
        read_flow(path)
    for problem in caught.value.problems:
        assert problem.startswith(f"{path}: ")
    return [problem.removeprefix(f"{path}: ") for problem in caught.value.problems]


def test_a_task_has_what_its_table_and_the_defaults_say(tmp_path):
    """The task's own fields win; its environment is laid over that of the defaults."""
    path = flow(
        tmp_path,
        """
        [defaults]
        attempts = 4
        cwd = "a"
        timeout = 10
        env = { A = "1", B = "1" }

        [tasks.one]
        argv = ["true"]

        [tasks."two.two"]
        argv = ["echo", "x"]
        after = ["one", "one"]
        attempts = 1
        cwd = ".."
        timeout = 0.5
        env = { B = "2" }
        """,
    )
    one, two = (task.command() for task in read_flow(path).tasks)
    base = str(tmp_path)
    assert one == Enqueue(
        "one",
        {"argv": ["true"], "cwd": f"{base}/a", "env": {"A": "1", "B": "1"}, "timeout": 10.0},
        max_attempts=4,
    )
    assert two == Enqueue(
        "two.two",
        {
            "argv": ["echo", "x"],
            "cwd": str(tmp_path.parent),
            "env": {"A": "1", "B": "2"},
            "timeout": 0.5,
        },
        ["one"],
        max_attempts=1,
    )


def test_the_content_does_not_depend_on_where_the_flow_is_run_from(tmp_path, monkeypatch):
    """Another directory, a relative path or a link to the folder: the same payloads."""
    path = flow(tmp_path, '[tasks.a]\nargv = ["true"]\ncwd = "sub/../x"\n')
    link = tmp_path.parent / f"{tmp_path.name}-link"
    link.symlink_to(tmp_path)
    first = read_flow(path).tasks
    assert read_flow(link / "flow.toml").tasks == first
    monkeypatch.chdir(tmp_path)
    assert read_flow(Path("flow.toml")).tasks == first
    assert first[0].spec.cwd == f"{tmp_path}/x"


def test_jsonl_says_the_same_as_toml(tmp_path):
    """One object a line; blank lines are passed over, and the name of the file may say nothing."""
    lines = (
        '{"id": "a", "argv": ["true"]}\n\n'
        '{"id": "b", "argv": ["x"], "after": ["a"], "attempts": 2, "cwd": "..", '
        '"env": {"E": "1"}, "timeout": 3}'
    )
    toml = (
        '[tasks.a]\nargv = ["true"]\n[tasks.b]\nargv = ["x"]\nafter = ["a"]\nattempts = 2\n'
        'cwd = ".."\nenv = { E = "1" }\ntimeout = 3\n'
    )
    expected = read_flow(flow(tmp_path, toml)).tasks
    assert read_flow(flow(tmp_path, lines, "graph.jsonl")).tasks == expected
    assert read_flow(flow(tmp_path, lines, "graph")).tasks == expected


def test_a_payload_gives_back_its_spec():
    """What a task carries is its whole spec."""
    spec = Spec(("a", "b"), "/x", {"A": "1"}, 2.5)
    assert spec_of(json.loads(json.dumps(spec.payload()))) == spec
    assert spec_of({"argv": ["a"]}) == Spec(("a",))


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        (None, "must be an object with argv, not the NoneType None"),
        ({"url": "x"}, 'unknown key "url"'),
        ({}, "argv is missing"),
        ({"argv": ["x"], "cwd": 3}, "cwd: it must be a text in quotes, not the number 3"),
    ],
)
def test_a_payload_that_is_no_spec_says_why(payload, said):
    """A queue may hold tasks that are no commands."""
    with pytest.raises(ValueError, match="payload") as caught:
        spec_of(payload)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ('argv = "echo hi"', 'argv: must be a list of texts, such as ["python3", "step.py"], not'),
        ("argv = []", "argv: is empty: name the command to run"),
        ('argv = [""]', "argv: begins with an empty text"),
        ('argv = ["a", 1]', "argv: part 2 must be a text in quotes, not the number 1"),
        ('argv = ["a", "\\u0000"]', "argv: part 2 holds a NUL character"),
        ('argv = ["a"]\nafter = "b"', 'after: must be a list of task ids, such as ["fetch"], not'),
        ('argv = ["a"]\nafter = [""]', "an id in after must not be empty"),
        ('argv = ["a"]\nafter = [1]', "after: id 1 must be a text in quotes, not the number 1"),
        ('argv = ["a"]\nattempts = 0', "attempts: must be a whole number of at least 1, not"),
        ('argv = ["a"]\nattempts = true', "not the truth value true"),
        ('argv = ["a"]\nattempts = 1.0', "not the number 1.0"),
        ('argv = ["a"]\nattempts = "3"', 'not the text "3"'),
        ('argv = ["a"]\ntimeout = 0', "timeout: must be a number of seconds above 0 and at most"),
        ('argv = ["a"]\ntimeout = nan', "not the number nan"),
        ('argv = ["a"]\ntimeout = inf', "not the number inf"),
        ('argv = ["a"]\ntimeout = true', "not the truth value true"),
        ('argv = ["a"]\ntimeout = 1e10', "at most 1,000,000,000"),
        ('argv = ["a"]\ncwd = 1', "cwd: it must be a text in quotes, not the number 1"),
        ('argv = ["a"]\ncwd = ""', 'cwd: is empty: write "." for the directory of the flow file'),
        ('argv = ["a"]\nenv = ["A=1"]', 'env: must be a table of texts, such as { LANG = "C" }'),
        ('argv = ["a"]\nenv = { A = 1 }', "env: A must be a text in quotes, not the number 1"),
        ('argv = ["a"]\nenv = { D = 2026-01-01 }', "env: D must be a text in quotes, not the date"),
        ('argv = ["a"]\nenv = { "A=B" = "x" }', "env: 'A=B' is no name for a variable"),
        ('argv = ["a"]\nenv = { "" = "x" }', "env: '' is no name for a variable"),
        ('argv = ["a"]\nenv = { EVENTQ_TASK = "x" }', "EVENTQ_TASK is set by the runner"),
        ('argv = ["a"]\nafer = []', 'unknown key "afer": did you mean after?'),
        ('argv = ["a"]\nid = "x"', 'unknown key "id": known are attempts, cwd, env'),
        ("attempts = 1", "argv is missing"),
    ],
)
def test_what_is_wrong_with_a_field_is_said_with_task_and_field(tmp_path, field, said):
    """File, task and field are named, with what was found and what would be right."""
    (problem,) = problems(flow(tmp_path, f"[tasks.it]\n{field}\n"))
    assert problem.startswith('task "it": ')
    assert said in problem


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ('""', "a task's id must not be empty"),
        ('"#1"', "must not start with '#'"),
        ('"a\\u0007b"', "holds the control character"),
        (f'"{"x" * 513}"', "has 513 bytes; at most 512 fit"),
    ],
)
def test_an_id_that_no_task_can_have_is_said(tmp_path, name, said):
    """The rules for ids are those of the queue."""
    (problem,) = problems(flow(tmp_path, f'[tasks.{name}]\nargv = ["a"]\n'))
    assert said in problem


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no task stands in it"),
        ("[defaults]\nattempts = 1\n", "no task stands in it"),
        ("tasks = 3\n", "tasks must be tables such as [tasks.fetch], not the number 3"),
        ("[tasks]\na = 3\n", 'task "a": must be a table, not the number 3'),
        ("defaults = 1\n[tasks.a]\nargv=['a']\n", "defaults: must be a table, not the number 1"),
        ("[task.a]\nargv=['a']\n", 'unknown key "task": did you mean tasks?'),
        ("[defaults]\nargv = ['a']\n[tasks.a]\nargv=['a']\n", 'defaults: unknown key "argv"'),
        ("[tasks.a]\nargv = [\n", "not TOML: "),
        ("[tasks.a]\nargv=['a']\n[tasks.a]\nargv=['a']\n", "not TOML: Cannot declare"),
        ("[tasks.a]\nargv=" + "[" * 5000, "not TOML: "),
        (b"\xef\xbb\xbf[tasks.a]\n", "begins with a byte order mark: save it as UTF-8 without one"),
        (b"\xff\xfe[\0", "begins with a byte order mark"),
        (b"[tasks.a]\nargv = ['\xe9']\n", "line 2: byte 0xe9 is not UTF-8"),
        (b"[tasks.a]\nargv = ['a']\0\n", "not TOML: "),
    ],
)
def test_what_is_wrong_with_a_whole_file_is_said(tmp_path, text, said):
    """Nothing is run of a file that is not right."""
    assert said in problems(flow(tmp_path, text))[0]


def test_a_file_without_an_end_is_not_read_to_it():
    """A pipe may be one, and has no size that could be asked before."""
    assert problems(Path("/dev/zero")) == [
        "cannot be read: it has more than 268,435,456 bytes, and no more are read"
    ]


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("\n\n", "no task stands in it"),
        ('{"id": "a", "argv": ["x"]}\n[1]', "line 2: must be an object with id and argv, not"),
        ('{"argv": ["x"]}', "line 1: id is missing"),
        ('{"id": 1, "argv": ["x"]}', "line 1: id must be a text, not the number 1"),
        ('{"id": "a", "argv": ["x"]', "line 1: not JSON: "),
        ('{"id": "a", "argv": ["x"]}\n' * 2, 'line 2: task "a" stands on line 1 already'),
        ('{"id": "a", "id": "b", "argv": ["x"]}', 'the key "id" stands twice in one object'),
        ('{"id": "a", "argv": ["x"], "timeout": NaN}', "NaN is no JSON number"),
        ('{"id": "a", "argv": ["\\ud800"]}', "part 1 holds a lone surrogate"),
        ('{"id": "\\ud800", "argv": ["x"]}', "holds a lone surrogate"),
        ('{"id": "a", "argv": ["x"], "cwd": null}', "cwd: it must be a text in quotes"),
        ('{"id": "a", "argv": ["x"], "timeout": null}', "timeout: must be a number of seconds"),
        ('{"id": "a", "argv": ["x"], "attempts": null}', "attempts: must be a whole number"),
        ("[" * 100000, "line 1: not JSON: "),
        ('{"id": "a", "argv": ["x"], "timeout": 1' + "0" * 5000 + "}", "line 1: "),
    ],
)
def test_what_is_wrong_with_a_line_is_said(tmp_path, lines, said):
    """JSONL is read as strictly as TOML."""
    assert said in problems(flow(tmp_path, lines, "graph.jsonl"))[0]


def test_all_that_is_wrong_is_said_at_once(tmp_path):
    """Nobody wants to mend a file one error at a time."""
    text = "x = 1\n[tasks.a]\nargv = 1\ntimeout = 0\n[tasks.b]\n[tasks.c]\nargv = ['c']\n"
    assert len(problems(flow(tmp_path, text))) == 4


def test_a_path_that_is_no_file_is_said(tmp_path):
    """A directory, nothing at all, and a name that no file can have."""
    assert problems(tmp_path) == ["is a directory, not a flow file"]
    assert problems(tmp_path / "nothing") == ["cannot be read: No such file or directory"]
    assert problems(tmp_path / "a\0b") == ["cannot be read: embedded null byte"]


def test_a_generated_graph_of_many_tasks_is_read(tmp_path):
    """Tens of thousands of tasks are no trouble."""
    with (tmp_path / "graph.jsonl").open("w") as file:
        for number in range(20_000):
            after = [f"t{number - 1}"] if number else []
            file.write(json.dumps({"id": f"t{number}", "argv": ["true"], "after": after}) + "\n")
    assert len(read_flow(tmp_path / "graph.jsonl").tasks) == 20_000


@pytest.mark.parametrize(
    ("name", "tasks"), [("packages.toml", 23), ("tour/tour.toml", 7)], ids=["packages", "tour"]
)
def test_the_flows_of_this_repository_are_right(name, tasks):
    """They need nothing but python3, and name only tasks of their own."""
    read = read_flow(FLOWS / name)
    names = {task.id for task in read.tasks}
    assert len(names) == tasks
    for task in read.tasks:
        assert task.spec.argv[0] == "python3"
        assert set(task.after) <= names
        assert task.spec.cwd is not None
        assert (Path(task.spec.cwd) / task.spec.argv[1]).is_file()
