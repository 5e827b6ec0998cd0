"""Pages of the site that lie elsewhere in the repository, and links to files that are no pages.

The pages of docs/ are also read in a checkout, where they link to source files by relative paths. The site is
self-contained: a file or folder that a page links to becomes a page of its own, and the links lead there.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
DOCS = "docs/"
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "benchmarks/README.md": "benchmarks.md",
    **{
        f"src/lockstep/workloads/{page.parent.name}/README.md": f"workloads/{page.parent.name}-details.md"
        for page in sorted((ROOT / "src" / "lockstep" / "workloads").glob("*/README.md"))
    },
}
"""Pages outside of docs/ that are pages of the site, with the names that they have there."""
LINK = re.compile(r"(\]\()([^)#\s]+)((?:#[^)\s]*)?\))")
LANGUAGES = {".py": "python", ".sh": "bash", ".sbatch": "bash", ".yaml": "yaml", ".toml": "toml"}
_origins: dict[str, str] = {}
"""The path in the repository that each page of the site comes from, where that is not docs/ and its own name."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that lie outside of docs/, and one for every file and folder that any page links to."""
    _origins.clear()
    for origin, name in PAGES.items():
        if files.get_file_from_path(name) is None:
            _add(files, config, origin, name, (ROOT / origin).read_text())
    for page in list(files.documentation_pages()):
        # A generated page of the reference links to nothing outside of the site.
        for target in linked(page.content_string, origin_of(page.src_uri)):
            name = page_of(target)
            if files.get_file_from_path(name) is None and (ROOT / target).exists():
                _add(files, config, target, name, source_page(target))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links to files of the repository lead to their pages of the site."""
    here, origin = page.file.src_uri, origin_of(page.file.src_uri)

    def moved(link: re.Match[str]) -> str:
        if _is_elsewhere(link[2]):
            return link[0]
        name = page_of(_target(link[2], origin))
        return f"{link[1]}{posixpath.relpath(name, posixpath.dirname(here) or '.')}{link[3]}"

    return LINK.sub(moved, markdown)


def origin_of(name: str) -> str:
    """The path in the repository that a page of the site comes from."""
    return _origins.get(name, f"{DOCS}{name}")


def linked(markdown: str, origin: str) -> list[str]:
    """The paths in the repository, outside of docs/, that a page links to."""
    targets = [_target(link[2], origin) for link in LINK.finditer(markdown) if not _is_elsewhere(link[2])]
    return [target for target in dict.fromkeys(targets) if not target.startswith(DOCS)]


def page_of(target: str) -> str:
    """The name that a path of the repository has on the site."""
    if target in PAGES:
        return PAGES[target]
    if target.startswith(DOCS):
        return target.removeprefix(DOCS)
    return f"source/{target}/index.md" if (ROOT / target).is_dir() else f"source/{target}.md"


def source_page(target: str) -> str:
    """A page that shows a file, or what a folder holds."""
    path = ROOT / target
    # Searching for a word should find the page that explains it, not every file that uses it.
    head = f"---\nsearch:\n  exclude: true\n---\n\n# `{target}`\n\n"
    if path.is_dir():
        inside = sorted(child for child in path.iterdir() if child.suffix != ".pyc" and child.name != "__pycache__")
        return head + "\n".join(f"* `{child.name}{'/' * child.is_dir()}`{_summary(child)}" for child in inside)
    fence = "`" * 6
    return f"{head}{fence}{LANGUAGES.get(path.suffix, 'text')}\n{path.read_text()}\n{fence}\n"


def _summary(path: Path) -> str:
    """The first line of a module's docstring."""
    first = path.read_text().partition("\n")[0] if path.suffix == ".py" else ""
    return f": {first.strip(chr(34))}" if first.startswith('"""') else ""


def _target(link: str, origin: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(origin), link))


def _is_elsewhere(link: str) -> bool:
    return "://" in link or link.startswith(("mailto:", "/"))


def _add(files: Files, config: MkDocsConfig, origin: str, name: str, content: str) -> None:
    _origins[name] = origin
    files.append(File.generated(config, name, content=content))
