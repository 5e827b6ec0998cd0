"""Everything about the package is in pyproject.toml, except that the wheel also gets the folder of examples."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithExamples(build_py):
    """Copies examples/ into the package: `lockstep examples` shows them where there is no checkout."""

    def run(self) -> None:
        """Build the package, then add the examples; an editable install reads them from the checkout."""
        super().run()
        if not self.editable_mode:
            target = Path(self.build_lib) / "lockstep" / "examples"
            shutil.copytree("examples", target, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))


setup(cmdclass={"build_py": BuildWithExamples})
