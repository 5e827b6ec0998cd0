"""What all tests share: one thread, a cache that is theirs, ranks that are started once, and kernels without a GPU."""

import io
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
import torch

from lockstep.distributed.pool import RankPool

torch.set_num_threads(1)
# A shell that puts tests into the background lets them, and all that they start, ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What workloads keep for the user goes to a folder of this session, in the processes that it starts too."""
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session")
def ranks(cache: None) -> Iterator[RankPool]:
    """Four live ranks on gloo: `ranks.run(function, *args, ranks=2)` runs a test file's function on the first two."""
    with RankPool(4) as pool:
        yield pool


class Screen(io.StringIO):
    """What a terminal is sent."""

    def isatty(self) -> bool:
        """It is one."""
        return True

    def lines(self) -> list[str]:
        """Without colours and movements of the cursor."""
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.getvalue()).splitlines()

    def words(self) -> list[str]:
        """What can be read, however it is broken into lines."""
        return " ".join(self.lines()).split()

    def too_wide(self, width: int) -> list[str]:
        """Lines that the terminal would have to break; a path that is too long alone is left to it, to be copied."""
        return [line for line in self.lines() if len(line) > width and " " in line.strip()]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Screen]:
    """`terminal(80)`: from now on stdout and stderr are one terminal of so many columns, which is returned."""

    def begin(width: int) -> Screen:
        monkeypatch.setenv("COLUMNS", str(width))
        screen = Screen()
        monkeypatch.setattr(sys, "stdout", screen)
        monkeypatch.setattr(sys, "stderr", screen)
        return screen

    return begin


@pytest.fixture
def interpret() -> Callable[[str], None]:
    """`interpret(__file__)` runs a test file by itself, with kernels that Triton's interpreter runs on the CPU."""
    pytest.importorskip("triton", reason="the kernels are written in Triton")

    def run(file: str) -> None:
        # Triton decides between compiler and interpreter when it is imported.
        environment = os.environ | {"TRITON_INTERPRET": "1"}
        done = subprocess.run([sys.executable, file], env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-2000:]

    return run


@pytest.fixture
def build_kernels(monkeypatch: pytest.MonkeyPatch, tmp_path: os.PathLike) -> Callable[..., list[str]]:
    """`build_kernels(module, *names)`: where these kernels would be started they are built for an H100 or H200.

    That needs no GPU. Returns the names of those that were; their outputs stay as they were.
    """
    pytest.importorskip("triton", reason="the kernels are written in Triton")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    built: list[str] = []

    def begin(module: ModuleType, *names: str) -> list[str]:
        for name in names:
            monkeypatch.setattr(module, name, _Build(getattr(module, name), built))
        return built

    return begin


class _Build:
    """Stands in for a kernel."""

    def __init__(self, kernel: Any, built: list[str]) -> None:
        self._kernel, self._built = kernel, built

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        assert all(0 < size <= limit for size, limit in zip(grid, (2**31 - 1, 65535, 65535), strict=False)), grid
        return self._build

    def _build(self, *arguments: Any, **options: Any) -> None:
        import triton
        from triton.backends.compiler import GPUTarget
        from triton.compiler import ASTSource

        parameters = self._kernel.params
        values = dict(zip((parameter.name for parameter in parameters), arguments, strict=False)) | options
        constants = {p.name: values[p.name] for p in parameters if p.is_constexpr}
        signature = {p.name: "constexpr" if p.is_constexpr else _type(values[p.name]) for p in parameters}
        chosen = {name: value for name, value in options.items() if name not in signature}
        source = ASTSource(self._kernel, signature, constants)
        assert triton.compile(source, target=GPUTarget("cuda", 90, 32), options=chosen).asm["cubin"]
        self._built.append(self._kernel.__name__)


def _type(value: Any) -> str:
    """As Triton spells it."""
    if isinstance(value, torch.Tensor):
        letter = "fp" if value.is_floating_point() else "i" if value.dtype.is_signed else "u"
        return "*bf16" if value.dtype == torch.bfloat16 else f"*{letter}{8 * value.element_size()}"
    if isinstance(value, float):
        return "fp32"
    return "i32" if -(2**31) <= value < 2**31 else "i64"
