"""What the README shows is what there is."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

import millpond

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples" / "custom_backend" / "sqlite_backend.py"
README = (ROOT / "README.md").read_text()


def block(kind: str, holding: str) -> str:
    """Give the README's code block of *kind* that holds a text."""
    blocks = [piece.split("```")[0] for piece in README.split(f"```{kind}\n")[1:]]
    return next(text for text in blocks if holding in text)


def test_the_backend_in_the_readme_is_the_example() -> None:
    """The code that is shown is the code that the tests run, and it has under sixty lines."""
    shown = block("python", "StateBackendFactory")

    assert EXAMPLE.read_text() == shown
    assert 60 > len([line for line in shown.splitlines() if line.strip()])


def test_the_loop_in_the_readme_runs_with_its_config(tmp_path: Path, monkeypatch) -> None:
    """The host's loop works as pasted, and goes on where it was after its local state is gone."""
    config = block("toml", "[job]").replace("/var/lib", f"{tmp_path}/var").replace("/mnt", f"{tmp_path}/mnt")
    assert tomllib.loads(config)
    (tmp_path / "job.toml").write_text(config)
    monkeypatch.chdir(tmp_path)
    source = millpond.SystemStreamPartition("kafka", "delays", 0)

    def read_after(offsets):
        begin = int(offsets.get(source, -1)) + 1
        return [SimpleNamespace(key="EWR", value=1, source=source, offset=n) for n in range(begin, begin + 10)]

    for _ in range(2):
        exec(block("python", "open_job"), {"read_after": read_after})

    with millpond.open_job("job.toml") as job, job.open_task("Partition 0") as task:
        assert 20 == task.store("delays")["EWR"]
        assert {source: "19"} == dict(task.offsets)


def test_the_example_backend_restores_on_an_empty_disk(tmp_path: Path, monkeypatch) -> None:
    """Sixty lines are a backend: state comes back without the local directory."""
    monkeypatch.syspath_prepend(str(EXAMPLE.parent))
    monkeypatch.delitem(sys.modules, "sqlite_backend", raising=False)

    def config(state: str) -> dict[str, object]:
        return {
            "job": {"name": "example", "state_dir": str(tmp_path / state)},
            "checkpoint": {"manager": "directory", "path": str(tmp_path / "records"), "retain": 2},
            "backends": {"db": {"type": "sqlite_backend:SqliteBackend", "path": str(tmp_path / "db")}},
            "stores": {"counts": {"engine": "memory", "key": "str", "value": "json"}},
        }

    with millpond.open_job(config("one")) as job, job.open_task("t") as task:
        for number in range(5):
            task.store("counts")["n"] = number
            task.processed(millpond.SystemStreamPartition("s", "t", 0), number)
            task.commit_now(30)

    with millpond.open_job(config("two")) as job, job.open_task("t") as task:
        assert 4 == task.store("counts")["n"]
    assert 2 == len(list((tmp_path / "db").rglob("*.db")))


@pytest.mark.parametrize(
    "holding", ["for offset, user in read_after", "async for offset, user"], ids=["thread", "loop"]
)
def test_the_hosts_in_the_guide_run(tmp_path: Path, monkeypatch, holding: str) -> None:
    """Both loops of the guide work as pasted, twice in a row, and count every record once."""
    (tmp_path / "job.toml").write_text(
        f"""
        job = {{ name = "guide", state_dir = "{tmp_path}/state" }}
        checkpoint = {{ manager = "directory", path = "{tmp_path}/records" }}
        backends.disk = {{ type = "rocksdb-local", path = "{tmp_path}/images" }}
        stores.counts = {{ engine = "memory", key = "str", value = "json" }}
        """
    )
    monkeypatch.chdir(tmp_path)
    guide = (ROOT / "docs" / "host.md").read_text()
    code = next(piece.split("```")[0] for piece in guide.split("```python\n")[1:] if holding in piece)

    class Records:
        """Ten more records each time, for `for` and for `async for`."""

        def __init__(self, last: str | None) -> None:
            begin = 0 if last is None else int(last) + 1
            self.left = [(number, "ann") for number in range(begin, begin + 10)]

        def __iter__(self):
            return iter(self.left)

        async def __aiter__(self):
            for record in self.left:
                yield record

    for _ in range(2):
        exec(code, {"read_after": Records})

    with millpond.open_job("job.toml") as job, job.open_task("Partition 0") as task:
        assert 20 == task.store("counts")["ann"]
