"""Style as a test: every file says what belongs in it, keeps one subject, and uses our words."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import eventq

HOUSE = Path(eventq.__file__).parent
FILES = sorted(HOUSE.rglob("*.py"))
LONGEST = 420
"""A file that grows past about 400 lines has two subjects."""

NOT_OUR_WORDS = {"job", "jobs", "message", "messages"}
"""A task is called a task; the contracts keep their own words."""

VAGUE = {"utils", "util", "helpers", "helper", "common", "base", "manager", "handler", "misc"}


def named(file: Path) -> str:
    return str(file.relative_to(HOUSE.parent))


def tree_of(file: Path) -> ast.Module:
    return ast.parse(file.read_text(), str(file))


@pytest.mark.parametrize("file", FILES, ids=named)
def test_every_file_says_what_belongs_in_it(file: Path) -> None:
    """In the first sentence of its docstring, which is one."""
    docstring = ast.get_docstring(tree_of(file))
    assert docstring, "it has no docstring"
    first = docstring.partition("\n\n")[0].replace("\n", " ")
    assert re.search(r"[.:](\s|$)", first), f"this is no sentence: {first}"
    assert len(first.split()) >= 4
    assert not re.match(r"(This|The) (module|file|package)\b", first)


@pytest.mark.parametrize("file", FILES, ids=named)
def test_no_file_is_too_long(file: Path) -> None:
    """Else find its two subjects."""
    assert len(file.read_text().splitlines()) <= LONGEST


@pytest.mark.parametrize("file", FILES, ids=named)
def test_no_file_has_a_vague_name(file: Path) -> None:
    """A name that says nothing invites anything."""
    assert not VAGUE & set(re.split(r"[_.]", file.stem))


def order(name: str) -> tuple[int, str]:
    """Constants, then classes, then the rest."""
    return (0 if name.isupper() else 1 if name[:1].isupper() else 2), name


@pytest.mark.parametrize("file", FILES, ids=named)
def test_every_file_lists_what_it_offers(file: Path) -> None:
    """`__all__` is sorted and without repeats, and each of its names is there."""
    tree = tree_of(file)
    public = {
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_")
    }
    listed = [
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        and node.value is not None
        and "__all__"
        in ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target)
    ]
    if not listed:
        assert not public, f"it offers {sorted(public)} and lists nothing"
        return
    (names,) = listed
    assert list(names) == sorted(set(names), key=order)
    parts = file.relative_to(HOUSE.parent).with_suffix("").parts
    module = importlib.import_module(".".join(p for p in parts if p != "__init__"))
    assert not [name for name in names if not hasattr(module, name)]


def words_of(tree: ast.Module) -> Iterator[str]:
    """The words that the names of a file are made of."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                found = name
            case ast.Name(id=name) | ast.arg(arg=name) | ast.Attribute(attr=name):
                found = name
            case ast.keyword(arg=str(name)):
                found = name
            case _:
                continue
        yield from re.findall(r"[A-Z]?[a-z]+|[A-Z]+", found)


@pytest.mark.parametrize("file", [f for f in FILES if f.parent.name != "contracts"], ids=named)
def test_a_task_is_called_a_task(file: Path) -> None:
    """No name is made of the words that others use for it, outside the contracts."""
    assert not {word.lower() for word in words_of(tree_of(file))} & NOT_OUR_WORDS


@pytest.mark.parametrize(
    "file",
    [
        f
        for f in FILES
        if f.parent.name != "contracts" and f.name not in {"persistent.py", "ordered.py"}
    ],
    ids=named,
)
def test_no_task_is_an_item(file: Path) -> None:
    """Nothing that is offered or asked for is an item, but in a collection that holds anything."""
    for node in ast.walk(tree_of(file)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.arg):
            name = node.arg if isinstance(node, ast.arg) else node.name
            assert not {"item", "items"} & set(name.lower().split("_"))


@pytest.mark.parametrize("file", FILES, ids=named)
def test_no_file_speaks_of_where_it_was_made(file: Path) -> None:
    """No path of a machine, and no note left behind for later."""
    text = file.read_text()
    assert not re.search(r"/(home|root|work|Users)/", text)
    assert not re.search(r"\b(TODO|FIXME|XXX|HACK)\b", text)
