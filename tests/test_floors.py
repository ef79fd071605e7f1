"""The floors of the house: who may import whom, read from the imports of every file."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import eventq
from eventq.storage.codec import EVENTS

HOUSE = Path(eventq.__file__).parent
FILES = sorted(HOUSE.rglob("*.py"))

STDLIB_OF_CORE = {
    "__future__",
    "bisect",
    "collections",
    "collections.abc",
    "datetime",
    "enum",
    "fnmatch",
    "hashlib",
    "heapq",
    "itertools",
    "json",
    "math",
    "queue",
    "re",
    "typing",
    "unicodedata",
}
"""What the core may use of the standard library: nothing that reads, writes, waits or draws."""

OTHERS = {"attrs", "cattrs", "click", "hypothesis", "msgspec", "pytest", "rich"}

MAY_USE = {
    "core": {"attrs"},
    "queries": {"attrs"},
    "contracts": set(),
    "workqueue": {"attrs"},
    "handle": {"attrs"},
    "view": set(),
    "storage": {"attrs", "cattrs", "msgspec"},
    "worker": {"attrs"},
    "aio": {"attrs"},
    "cli": {"attrs", "cattrs", "click", "rich"},
    "testing": {"attrs", "hypothesis"},
    "__main__": set(),
    "": set(),
}
"""Which packages of others each floor may import."""

MAY_IMPORT = {
    "core": {"core"},
    "storage": {"core", "storage"},
    "queries": {"core", "queries"},
    "view": {"core", "storage"},
    "handle": {"core", "storage", "view"},
    "workqueue": {"core", "storage", "handle"},
    "contracts": {"core", "workqueue", "contracts"},
    "worker": {"core", "workqueue", "worker"},
    "aio": {"core", "workqueue", "worker", "aio"},
    "cli": {
        *("core", "storage", "queries", "view", "handle", "workqueue", "contracts"),
        *("worker", "aio", "cli", ""),
    },
    "testing": {"core", "storage", "queries", "handle", "workqueue", "testing", ""},
    "__main__": {"cli"},
    "": {"core", "storage", "workqueue"},
}
"""Which floors each may stand on; "" is the surface, `eventq` itself."""

MEAN_SOMETHING_ELSE = {
    "blocked": "a kind of answer to `why`",
    "cancelled": "a kind of answer to `why`",
    "closed": "how admission stands, and the name of a refusal",
    "parked": "a kind of answer to `why`",
    "paused": "how dispatch stands, and a kind of answer to `why`",
}
"""Names on the wire that are words of the core as well."""


WORDS_FOR_PEOPLE = {"cli", "testing"}
"""Floors that tell people what happened, in words like those on the wire."""


def module_of(file: Path) -> str:
    parts = file.relative_to(HOUSE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def floor_of(module: str) -> str:
    """The floor of a module of eventq: its folder, `workqueue`, or the surface."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


def tree_of(file: Path) -> ast.Module:
    return ast.parse(file.read_text(), str(file))


def imports_of(file: Path) -> set[str]:
    """Every module that a file imports, wherever in it: those of eventq by their whole name."""
    found: set[str] = set()
    for node in ast.walk(tree_of(file)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: imports name the whole path"
            assert node.module is not None
            found.add(node.module)
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= inner & MODULES
    return found


MODULES = {module_of(file) for file in FILES}
IMPORTS = {module_of(file): imports_of(file) for file in FILES}


def ours(module: str) -> bool:
    return module == "eventq" or module.startswith("eventq.")


def reached(module: str) -> set[str]:
    """Every module of eventq that importing this one imports in the end."""
    seen: set[str] = set()
    left = [module]
    while left:
        for one in IMPORTS.get(left.pop(), ()):
            if ours(one) and one not in seen:
                seen.add(one)
                left.append(one)
    return seen


def named(file: Path) -> str:
    return str(file.relative_to(HOUSE.parent))


def test_there_is_a_house() -> None:
    """The files are found, and each floor has some."""
    assert {floor_of(module) for module in MODULES} == set(MAY_IMPORT)
    assert IMPORTS["eventq.core.downstream"] >= {"eventq.core.evolve", "collections"}


@pytest.mark.parametrize("file", FILES, ids=named)
def test_each_floor_stands_on_those_below_it(file: Path) -> None:
    """No file imports from a floor above its own or beside it."""
    module = module_of(file)
    floor = floor_of(module)
    wrong = {
        other
        for other in IMPORTS[module]
        if ours(other) and floor_of(other) not in MAY_IMPORT[floor]
    }
    assert not wrong


@pytest.mark.parametrize("file", FILES, ids=named)
def test_each_floor_uses_its_own_packages(file: Path) -> None:
    """The core depends on attrs alone, and only `eventq.testing` on hypothesis."""
    module = module_of(file)
    used = {other.split(".")[0] for other in IMPORTS[module]} & OTHERS
    assert used <= MAY_USE[floor_of(module)]


@pytest.mark.parametrize("file", [f for f in FILES if floor_of(module_of(f)) == "core"], ids=named)
def test_the_core_uses_a_short_list_of_the_standard_library(file: Path) -> None:
    """What is neither eventq's nor attrs' is written down in this test."""
    others = {module for module in IMPORTS[module_of(file)] if not ours(module)}
    assert others <= STDLIB_OF_CORE | {"attrs"}


def test_the_list_of_the_standard_library_is_no_longer_than_needed() -> None:
    """A name that the core has given up is given up here too."""
    used = set().union(*(found for module, found in IMPORTS.items() if floor_of(module) == "core"))
    assert used >= STDLIB_OF_CORE


@pytest.mark.parametrize("file", [f for f in FILES if floor_of(module_of(f)) == "core"], ids=named)
def test_the_core_reads_no_clock_and_does_no_io(file: Path) -> None:
    """The time comes in with the command; nothing is opened, printed or drawn."""
    for node in ast.walk(tree_of(file)):
        if isinstance(node, ast.Call):
            called = node.func
            if isinstance(called, ast.Name):
                assert called.id not in {"open", "print", "input", "id", "exec", "eval"}
            elif isinstance(called, ast.Attribute):
                assert called.attr not in {"now", "utcnow", "today", "uuid4", "urandom"}


def test_evolve_never_imports_decide() -> None:
    """Not even by way of another module: a log folds without any rule."""
    assert "eventq.core.decide" not in reached("eventq.core.evolve")
    assert "eventq.core.evolve" in reached("eventq.core.decide")


def test_nobody_imports_what_is_for_tests() -> None:
    """`eventq.testing` is shipped to users, and nothing of eventq needs it to run."""
    wrong = {
        module
        for module, found in IMPORTS.items()
        if floor_of(module) != "testing" and any(floor_of(o) == "testing" for o in found if ours(o))
    }
    assert not wrong


def test_nobody_stands_on_the_command_line() -> None:
    """It is a face like the contracts, and the top of the house."""
    for module in ("eventq", "eventq.workqueue", *(m for m in MODULES if ".contracts." in m)):
        assert not {other for other in reached(module) if floor_of(other) in {"cli", "queries"}}


# Names on the wire.


def test_the_names_on_the_wire_are_written_down() -> None:
    """In one table of the codec, each as a text: none is made from the name of a class."""
    for node in ast.walk(tree_of(HOUSE / "storage" / "codec.py")):
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "EVENTS":
            assert isinstance(node.value, ast.Dict)
            written = [key.value for key in node.value.values if isinstance(key, ast.Constant)]
            assert written == list(EVENTS.values())
            return
    pytest.fail("the codec has no table EVENTS")


@pytest.mark.parametrize(
    "file",
    [f for f in FILES if floor_of(module_of(f)) not in WORDS_FOR_PEOPLE and f.name != "codec.py"],
    ids=named,
)
def test_no_other_file_knows_a_name_on_the_wire(file: Path) -> None:
    """Those aside whose words are for people, no text elsewhere is such a name."""
    texts = {
        node.value
        for node in ast.walk(tree_of(file))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    assert not texts & (set(EVENTS.values()) - set(MEAN_SOMETHING_ELSE))


def test_only_storage_and_the_command_line_know_the_codec() -> None:
    """Everyone else speaks of events."""
    users = {module for module, found in IMPORTS.items() if "eventq.storage.codec" in found}
    assert {floor_of(module) for module in users} <= {"storage", "cli"}
