"""The structure of the package, held by tests: import direction, light modules, tidy tree."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "temper"

# The way a model takes. A room may import those before it, never those behind it, imports inside
# functions included.
ORDER = [
    "_version",
    "errors",
    "files",
    "units",
    "clock",
    "process",
    "kernels",
    "chips",
    "machine",
    "formats",
    "options",
    "program",
    "cost",
    "placement",
    "weights",
    "graph",
    "torch_device",
    "capture",
    "passes",
    "lowering",
    "compiler",
    "record",
    "targets",
    "run",
    "report",
    "frontdoor",
    "tuning",
    "doctor",
    "etl",
    "compat",
    "cli",
]
RANK = {name: index for index, name in enumerate(ORDER)}
LIGHT = [
    "options",
    "chips",
    "machine",
    "cost",
    "placement",
    "program",
    "record",
    "run",
    "report",
    "doctor",
    "cli",
    "errors",
    "formats",
]


# Files whose imports inside functions have another reason than start-up.
LATE_ON_PURPOSE = {
    "temper.kernels": "the native module may be missing; the pure one stands in",
    "temper.compat.children": "every child process runs it; most stop at its first line",
    "temper.compat.startup.sitecustomize": "every child process runs it",
    "temper.torch_device.autoload": "importing torch must change nothing until the device is used",
    "temper.torch_device.device": "importing them registers the device's kernels in torch",
}
# So many modules of ours count as start-up time.
MANY_MODULES = 10


def python_files() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def package_of(path: Path) -> str:
    parts = path.relative_to(SOURCE).parts
    return parts[0] if len(parts) > 1 else parts[0].removesuffix(".py")


def imports_of(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {n.split(".")[1] for n in found if n.startswith("temper.")} & set(RANK)


def module_name(path: Path) -> str:
    parts = ("temper", *path.relative_to(SOURCE).with_suffix("").parts)
    return ".".join(part for part in parts if part != "__init__")


def runtime_imports(path: Path, known: set[str]) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    typing_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for statement in node.body
        for inner in ast.walk(statement)
    }
    found: set[str] = set()
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in known else node.module for name in names}
    return (found & known) - {"temper"}


def split_imports(path: Path, known: set[str]) -> tuple[set[str], dict[int, set[str]]]:
    """What a file imports at its head, and inside functions (ours alone) by line."""
    early: set[str] = set()
    late: dict[int, set[str]] = {}

    def visit(node: ast.AST, inside: bool) -> None:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            return
        inside = inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            found: set[str] = set()
            if isinstance(child, ast.Import):
                found = {alias.name for alias in child.names}
            elif isinstance(child, ast.ImportFrom) and child.module:
                names = {f"{child.module}.{alias.name}" for alias in child.names}
                found = {name if name in known else child.module for name in names}
            if inside and found & known:
                late[child.lineno] = found & known
            elif not inside:
                early.update(found)
            visit(child, inside)

    visit(ast.parse(path.read_text(encoding="utf-8")), False)
    return early, late


@pytest.mark.parametrize("path", python_files(), ids=lambda p: str(p.relative_to(SOURCE)))
def test_a_file_imports_only_rooms_before_its_own(path: Path) -> None:
    own = package_of(path)
    if own not in RANK:
        return  # __init__ and __main__ of the package itself
    wrong = {other for other in imports_of(path) if RANK[other] > RANK[own]}
    assert not wrong, f"{own} must not import {sorted(wrong)}"


def test_every_room_has_its_place_in_the_order() -> None:
    assert {package_of(path) for path in python_files()} - {"__init__", "__main__"} <= set(RANK)


def test_no_module_imports_itself_in_a_circle() -> None:
    """Imports inside functions count; those for type checking alone do not."""
    files = {module_name(path): path for path in python_files() if "standins" not in path.parts}
    graph = {name: runtime_imports(path, set(files)) - {name} for name, path in files.items()}
    waiting = dict(graph)
    while waiting:  # take away whatever imports nothing that is left; what stays is circles
        free = [name for name, targets in waiting.items() if not targets & set(waiting)]
        assert free, f"in a circle, or above one: {sorted(waiting)}"
        for name in free:
            del waiting[name]


def test_an_import_inside_a_function_saves_start_up_time() -> None:
    """It brings a library that its file does not load, or many modules of ours; else it belongs at
    the head of the file, where a reader looks for it."""
    files = {module_name(path): path for path in python_files() if "standins" not in path.parts}
    imports = {name: split_imports(path, set(files)) for name, path in files.items()}

    def loaded_by(name: str) -> tuple[set[str], set[str]]:
        ours, libraries, waiting = set(), set(), [name]
        while waiting:
            current = waiting.pop()
            if current in ours:
                continue
            ours.add(current)
            parts = current.split(".")
            packages = {".".join(parts[:count]) for count in range(1, len(parts))}
            for target in packages | imports.get(current, (set(), {}))[0]:
                if target in files:
                    waiting.append(target)
                elif target.split(".")[0] not in sys.stdlib_module_names:
                    libraries.add(target.split(".")[0])
        return ours, libraries

    needless = []
    for name, (_, late) in imports.items():
        if name in LATE_ON_PURPOSE:
            continue
        ours, libraries = loaded_by(name)
        for line, targets in late.items():
            more = [loaded_by(target) for target in targets]
            new_libraries = set().union(*(found[1] for found in more)) - libraries
            new_modules = set().union(*(found[0] for found in more)) - ours
            if more and not new_libraries and len(new_modules) < MANY_MODULES:
                needless.append(f"{name}:{line} {sorted(targets)}")
    assert not needless
    assert set(LATE_ON_PURPOSE) <= set(files)


@pytest.mark.parametrize("name", LIGHT)
def test_a_light_module_imports_no_torch(name: str) -> None:
    code = f"import temper.{name}, sys; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_the_command_starts_with_few_imports() -> None:
    """A budget in modules, not in seconds: help must not pull in numpy, rich or torch."""
    code = (
        "import sys; sys.argv=['temper','--help']\n"
        "from temper.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'torch','numpy','rich','pyarrow','scipy','optuna','matplotlib'}\n"
        "print('LOADED', len(sys.modules), sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    last = done.stdout.strip().splitlines()[-1]
    count = int(last.split()[1])
    assert last.endswith("[]"), last
    assert count < 400


@pytest.mark.parametrize("path", python_files(), ids=lambda p: str(p.relative_to(SOURCE)))
def test_a_file_says_its_one_job_and_stays_short(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert ast.get_docstring(ast.parse(text)), "the first line says what the file is for"
    assert text.count("\n") <= 400, "look for the second job in it"


def test_every_public_function_and_class_says_what_it_is_for() -> None:
    """Stand-ins for other packages are left out: their names are told by those packages."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    silent = [
        f"{path.relative_to(SOURCE)}:{node.lineno} {node.name}"
        for path in python_files()
        if "standins" not in path.parts
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, kinds) and not node.name.startswith("_") and not ast.get_docstring(node)
    ]
    assert not silent


def test_the_map_in_the_docs_names_every_package() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    packages = {p.name for p in SOURCE.iterdir() if p.is_dir() and not p.name.startswith("_")}
    missing = {name for name in packages if f"{name}/" not in text}
    assert not missing


def test_the_contributors_guide_names_files_that_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:src|tests)/[^`<]+)`", text)
    assert len(named) > 15
    missing = [name for name in named if not list(ROOT.glob(name.rstrip("/")))]
    assert not missing


def test_no_path_of_one_machine_is_committed() -> None:
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if done.returncode:
        pytest.skip("not a git checkout")
    pattern = re.compile(rb"/" + rb"(work|farm|root)/|file:///|/simple/")
    offenders = []
    for name in filter(None, done.stdout.decode().split("\0")):
        path = ROOT / name
        if path.is_file() and path != Path(__file__) and pattern.search(path.read_bytes()):
            offenders.append(name)
    assert not offenders
