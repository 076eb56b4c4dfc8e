"""The compile cache on disk: whole entries or none, whatever other writers and damage do."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import pytest

from temper.compiler import cache, pipeline
from temper.compiler.cache import PlacementCache, default_cache
from temper.errors import UsageError
from temper.program import Op, Program, TensorSpec

KEY = "0123456789abcdef"


def program(name: str = "p", width: int = 64) -> Program:
    values = {"x": TensorSpec((32, width)), "y": TensorSpec((32, width))}
    op = Op("Unary", ("x",), ("y",), {"functions": [["relu"]]})
    return Program(name, "n150", values, (op,), ("x",), ("y",))


@pytest.fixture
def store(tmp_path: Path) -> PlacementCache:
    return PlacementCache(tmp_path / "programs")


def test_a_stored_program_comes_back_equal(store: PlacementCache) -> None:
    assert store.get(KEY) is None
    assert store.put(KEY, program())
    assert store.get(KEY) == program()
    assert store.counts.as_dict() == {
        "hits": 1, "misses": 1, "stored": 1, "discarded": 0, "evicted": 0
    }  # fmt: skip
    assert [p.name for p in store.folder.iterdir()] == [f"{KEY}.temper"]
    assert store.folder.stat().st_mode & 0o077 == 0


def test_an_entry_is_refused_under_another_key(store: PlacementCache) -> None:
    store.put(KEY, program())
    other = KEY[::-1]
    store.path(KEY).rename(store.path(other))
    with pytest.warns(UserWarning, match="stored under another key"):
        assert store.get(other) is None
    assert not store.path(other).exists()


def test_the_key_follows_the_compilers_own_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    before = pipeline._key(program())
    assert pipeline._key(program()) == before
    assert pipeline._key(program(width=96)) != before
    monkeypatch.setattr(pipeline, "_sources", lambda: "another compiler")
    assert pipeline._key(program()) != before


def test_tests_leave_the_users_cache_alone() -> None:
    assert not default_cache().folder.is_relative_to(Path.home() / ".cache")


def test_a_later_put_replaces(store: PlacementCache) -> None:
    store.put(KEY, program("first"))
    store.put(KEY, program("second"))
    assert store.get(KEY) == program("second")


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "foreign"])
def test_a_damaged_entry_is_discarded_with_a_note(store: PlacementCache, damage: str) -> None:
    store.put(KEY, program())
    path = store.path(KEY)
    data = bytearray(path.read_bytes())
    if damage == "cut":
        data = data[: len(data) // 2]
    elif damage == "flip":
        place = data.index(b"relu")
        data[place] ^= 1
    elif damage == "empty":
        data = bytearray()
    else:
        data = bytearray(b"\x80\x04cos\nsystem\n(S'true'\ntR.")
    path.write_bytes(data)
    with pytest.warns(UserWarning, match="damaged compile cache entry discarded"):
        assert store.get(KEY) is None
    assert not path.exists()
    assert store.put(KEY, program())
    assert store.get(KEY) == program()


def test_the_least_recently_used_go_first(store: PlacementCache) -> None:
    keys = [f"{i:08x}" for i in range(6)]
    for i, key in enumerate(keys[:5]):
        store.put(key, program())
        os.utime(store.path(key), (1000 + i, 1000 + i))
    assert store.get(keys[0]) is not None  # used just now
    size = store.path(keys[0]).stat().st_size
    small = PlacementCache(store.folder, limit_bytes=5 * size)
    small.put(keys[5], program())
    left = {path.stem for path in store.folder.iterdir()}
    assert left == {keys[0], keys[3], keys[4], keys[5]}
    assert small.counts.evicted == 2
    assert small.size_bytes() <= small.limit_bytes


def test_an_entry_above_the_limit_still_stays_until_the_next(store: PlacementCache) -> None:
    tiny = PlacementCache(store.folder, limit_bytes=1)
    assert tiny.put(KEY, program())
    assert tiny.get(KEY) == program()
    tiny.put("ffffffff", program())
    assert tiny.get(KEY) is None


def test_parts_of_dead_writers_are_cleared(store: PlacementCache) -> None:
    store.put(KEY, program())
    old, fresh = store.folder / "dead.1.1.part", store.folder / "alive.2.2.part"
    for path in (old, fresh):
        path.write_bytes(b"half")
    long_ago = time.time() - 2 * 3600
    os.utime(old, (long_ago, long_ago))
    store.put(KEY, program())
    assert not old.exists()
    assert fresh.exists()


def test_many_threads_write_and_read_one_key(store: PlacementCache) -> None:
    wrong: list[object] = []

    def work(number: int) -> None:
        for _ in range(10):
            store.put(KEY, program(width=32 * (number + 1)))
            seen = store.get(KEY)
            if seen is None or seen.name != "p":
                wrong.append(seen)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []
    assert len(list(store.folder.iterdir())) == 1


def test_two_processes_share_a_folder(tmp_path: Path) -> None:
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from test_compile_cache import KEY, program\n"
        "from temper.compiler import cache\n"
        "for i in range(20):\n"
        "    assert cache.put(KEY, program()) and cache.get(KEY) == program()\n"
    )
    folder = str(Path(__file__).parent)
    environment = {**os.environ, "TEMPER_CACHE_DIR": str(tmp_path), "OMP_NUM_THREADS": "1"}
    environment.pop("TEMPER_CACHE", None)
    running = [
        subprocess.Popen([sys.executable, "-W", "error::UserWarning", "-c", script, folder],
                         env=environment, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]  # fmt: skip
    for process in running:
        _, error = process.communicate(timeout=120)
        assert process.returncode == 0, error
    assert [p.name for p in tmp_path.iterdir()] == [f"{KEY}.temper"]


def test_a_folder_that_cannot_be_written_is_a_note(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    with pytest.warns(UserWarning, match="compile cache not written"):
        assert not PlacementCache(blocked).put(KEY, program())
    assert PlacementCache(blocked).get(KEY) is None


@pytest.mark.parametrize("key", ["", "../../etc/passwd", "xyz", "ABCDEF0123", "a" * 200])
def test_a_key_is_a_hash_and_no_path(store: PlacementCache, key: str) -> None:
    with pytest.raises(UsageError, match="no cache key"):
        store.get(key)


def test_the_environment_chooses_place_size_and_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TEMPER_CACHE", raising=False)
    monkeypatch.delenv("TEMPER_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache.default_folder() == tmp_path / "xdg" / "temper" / "programs"
    monkeypatch.setenv("TEMPER_CACHE_DIR", str(tmp_path / "mine"))
    monkeypatch.setenv("TEMPER_CACHE_LIMIT", "4096")
    assert cache.default_cache().limit_bytes == 4096
    assert cache.put(KEY, program())
    assert cache.get(KEY) == program()
    monkeypatch.setenv("TEMPER_CACHE", "0")
    assert cache.get(KEY) is None
    assert not cache.put(KEY, program())
    monkeypatch.setenv("TEMPER_CACHE_LIMIT", "much")
    with pytest.raises(UsageError, match="no number of bytes"):
        cache.default_cache()


def test_clearing_empties_the_folder(store: PlacementCache) -> None:
    store.put(KEY, program())
    store.put("ffffffff", program())
    assert store.clear() == 2
    assert store.size_bytes() == 0
