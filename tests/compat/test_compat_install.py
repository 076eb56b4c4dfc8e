"""Stand-ins exist only inside ``temper run``, and any real package overrules them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from temper.compat import install

NAMES = install.STAND_INS


def python(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], cwd=cwd, capture_output=True, text=True,
                          timeout=120, check=False)  # fmt: skip


def run(tmp_path: Path, source: str, *arguments: str, options: tuple[str, ...] = ()
        ) -> subprocess.CompletedProcess[str]:  # fmt: skip
    script = tmp_path / "script.py"
    script.write_text(source)
    return python("-m", "temper", "run", *options, "script.py", *arguments, cwd=tmp_path)


@pytest.mark.parametrize("name", sorted(set(NAMES) - {"tt_torch", "tt_mlir"}))
def test_a_plain_import_finds_no_stand_in(name: str, tmp_path: Path) -> None:
    done = python("-c", f"import temper, temper.compat.install\nimport {name}", cwd=tmp_path)
    assert done.returncode == 1
    assert f"No module named '{name}'" in done.stderr


@pytest.mark.parametrize("name", NAMES)
def test_a_real_package_always_wins(name: str, tmp_path: Path) -> None:
    real = tmp_path / name
    real.mkdir()
    (real / "__init__.py").write_text("real = True\n")
    (real / "sub.py").write_text("")
    done = run(tmp_path, f"import {name}, {name}.sub\nprint({name}.real, {name}.__file__)\n")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["True", str(real / "__init__.py")]
    assert "stand-in" not in done.stderr


def test_a_real_package_gets_no_submodules_of_ours(tmp_path: Path) -> None:
    (tmp_path / "torch_xla").mkdir()
    (tmp_path / "torch_xla" / "__init__.py").write_text("")
    done = run(tmp_path, "import torch_xla.runtime\n")
    assert done.returncode == 1
    assert "No module named 'torch_xla.runtime'" in done.stderr
    assert "stand-in" not in done.stderr


def installed(tmp_path: Path, source: str) -> subprocess.CompletedProcess[str]:
    """The script in a Python that has ``site`` as one of its site-packages."""
    folder = tmp_path / "program"
    folder.mkdir(exist_ok=True)
    (folder / "script.py").write_text(source)
    start = (
        "import site, sys\nsite.addsitedir(sys.argv.pop(1))\nfrom temper.cli import main\nmain()\n"
    )
    return python("-c", start, str(tmp_path / "site"), "run", "script.py", cwd=folder)


WHICH = "import tt_torch\nprint(list(tt_torch.__path__)[0])\n"


def test_a_package_installed_without_an_init_file_wins_too(tmp_path: Path) -> None:
    real = tmp_path / "site" / "tt_torch"
    (real / "tools").mkdir(parents=True)
    (real / "tools" / "verify.py").write_text("real = True\n")
    done = installed(tmp_path, WHICH + "from tt_torch.tools.verify import real\n")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(real)
    assert "stand-in" not in done.stderr


def test_an_editable_install_by_path_wins(tmp_path: Path) -> None:
    real = tmp_path / "checkout" / "tt_torch"
    real.mkdir(parents=True)
    (real / "thing.py").write_text("")
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "tt_torch.pth").write_text(f"{real.parent}\n")
    done = installed(tmp_path, WHICH)
    assert done.stdout.strip() == str(real), done.stderr
    assert "stand-in" not in done.stderr


FINDER = """
import sys
from importlib.machinery import ModuleSpec

class Finder:
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name == "tt_torch":
            spec = ModuleSpec(name, None, is_package=True)
            spec.submodule_search_locations = [{folder!r}]
            return spec

sys.meta_path.append(Finder)
"""


def test_an_editable_install_by_finder_wins(tmp_path: Path) -> None:
    real = tmp_path / "checkout" / "tt_torch"
    real.mkdir(parents=True)
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "editable_tt.pth").write_text("import editable_tt_finder\n")
    (tmp_path / "site" / "editable_tt_finder.py").write_text(FINDER.format(folder=str(real)))
    done = installed(tmp_path, WHICH)
    assert done.stdout.strip() == str(real), done.stderr
    assert "stand-in" not in done.stderr


@pytest.mark.parametrize("content", [(), ("notes.txt",), ("old_script.py",)])
def test_a_bare_folder_beside_the_script_hides_nothing(
    tmp_path: Path, content: tuple[str, ...]
) -> None:
    (tmp_path / "tt_torch").mkdir()
    for name in content:
        (tmp_path / "tt_torch" / name).write_text("")
    done = run(tmp_path, "import tt_torch\nprint(tt_torch.__all__)\n")
    assert "CompilerConfig" in done.stdout, done.stderr
    assert "tt_torch is a stand-in" in done.stderr


def test_an_empty_folder_left_by_an_uninstalled_package_hides_nothing(tmp_path: Path) -> None:
    (tmp_path / "site" / "tt_torch" / "__pycache__").mkdir(parents=True)
    done = installed(tmp_path, "import tt_torch\nprint(tt_torch.__all__)\n")
    assert "CompilerConfig" in done.stdout, done.stderr


def test_looking_for_a_package_without_importing_it_says_nothing(tmp_path: Path) -> None:
    source = "from importlib.util import find_spec\nprint(find_spec('torch_xla') is not None)\n"
    done = run(tmp_path, source)
    assert done.stdout.strip() == "True"
    assert done.stderr == ""


def test_stand_ins_are_named_once_on_stderr(tmp_path: Path) -> None:
    source = "import tracy\nimport tracy\nfrom tracy import signpost\nsignpost('a', 'b')\n"
    done = run(tmp_path, source)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert done.stderr.count("tracy is a stand-in") == 1
    assert "torch_xla" not in done.stderr


@pytest.fixture
def at_hand() -> object:
    install.install()
    yield None
    install.uninstall()


@pytest.mark.parametrize("name", [m for top in NAMES for m in install.submodules(top)])
def test_every_module_names_what_it_has_when_asked_for_more(name: str, at_hand: None) -> None:
    import importlib

    module = importlib.import_module(name)
    for public in module.__all__:
        assert getattr(module, public) is not None
    with pytest.raises(AttributeError, match="has no 'warp_drive'; it has") as caught:
        _ = module.warp_drive
    assert all(public in str(caught.value) for public in module.__all__)
    with pytest.raises(ImportError, match="has no 'warp_drive'; it has"):
        exec(f"from {name} import warp_drive")
    assert not hasattr(module, "warp_drive")


def test_a_missing_submodule_names_those_there_are(at_hand: None) -> None:
    with pytest.raises(ModuleNotFoundError, match=r"torch_xla\.core\.xla_model"):
        import torch_xla.amp  # noqa: F401


def test_uninstalling_leaves_nothing_behind() -> None:
    install.install()
    import tracy  # noqa: F401

    install.uninstall()
    assert "tracy" not in sys.modules
    assert not any(isinstance(finder, install.StandInFinder) for finder in sys.meta_path)
