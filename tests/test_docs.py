"""The pages: links lead to files, command lines are the real parser's, blocks of tutorials run."""

import ast
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
import yaml

import lockstep
from lockstep import api
from lockstep.cli.argv import HelpWanted
from lockstep.cli.main import VERBS, dispatch, main
from lockstep.config.sources import choices
from lockstep.workloads import registry

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
PAGES = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "src").rglob("*.md"), ROOT / "benchmarks/README.md"]
)
by_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


# Reading a page


@dataclass(frozen=True)
class Block:
    """A block of code; `not_run`: why nothing runs it, if a comment above it says so."""

    language: str
    text: str
    not_run: str

    def lines(self):
        """Commands of a shell, without explanations and line breaks. In a console only what follows a prompt."""
        if self.language not in ("", "bash", "console"):
            return []
        lines = self.text.replace("\\\n", " ").splitlines()
        if self.language == "console":
            lines = [re.sub(r"^\w*\$\s+", "", line) for line in lines if re.match(r"\w*\$ ", line)]
        # An explanation stands behind a # or, in older blocks, behind two spaces.
        return [re.sub(r"\s+#.*|(?<=\S)\s{2,}[^-\s].*", "", line).strip() for line in lines]


FENCE = re.compile(r"(?:<!-- not run: (?P<why>.*?) -->\s*)?^```(?P<language>\w*)[^\n]*\n(?P<text>.*?)^```", re.M | re.S)
INDENTED = re.compile(r"(?:(?<=\n\n)|\A)(?:    .*(?:\n|\Z))+", re.M)


def blocks(page):
    """A page's blocks of code, in their order; indented ones, as the first page has them, after those in fences."""
    text = page.read_text()
    found = [Block(fence["language"], fence["text"], fence["why"] or "") for fence in FENCE.finditer(text)]
    rest = FENCE.sub("", text)
    return found + [Block("", re.sub("^    ", "", code, flags=re.M), "") for code in INDENTED.findall(rest)]


def commands(page):
    """The words of every `lockstep` command of a page, in blocks and in the text, without the first one."""
    text = FENCE.sub("", page.read_text())
    spans = [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", text)]
    lines = [line for block in blocks(page) for line in block.lines()] + spans
    for command in (part for line in lines for part in line.split(" | ")):
        # Variables in front of a command, or torchrun, which starts the same program.
        if found := re.match(r"(?:[A-Z_]+=\S+ )*(?:torchrun .*-m )?lockstep (.*)", command):
            yield shlex.split(found[1].replace("\\|", "|"))


# What the parser knows

OF_SETTINGS = {"train", "plan", "resume", "sweep", "bench", "verify", "check", "eval", "play", "record", "export"}
"""Verbs that also take settings of a workload."""
PLACEHOLDER = re.compile(r"\.\.\.|(^|[=/:,])[A-Z][A-Z0-9-]*\b|[\[\]{}|<>]")


@cache
def flags_of(verb):
    """The flags that `lockstep VERB --help` lists."""
    try:
        dispatch([verb, "--help"])
    except HelpWanted as text:
        names = re.findall(r"^  (--\S.*)$", str(text), re.M)
        return {name.removeprefix("--").replace("-", "_") for line in names for name in line.split(", ")}
    return set()


@cache
def settings_of(workload, **chosen):
    """Every name of every setting that a workload has."""
    schema = registry.load(workload).layout(**chosen).schema
    sections = set(schema.sections)
    return set(schema.names) | {f"{section}.{name}" for section in sections for name in schema.names}


@cache
def settings_of_all():
    """The same of all workloads with all their algorithms: a run, or somebody's own file, may be any of them."""
    return {
        name
        for workload in registry.names()
        for algorithm in registry.load(workload).algorithms
        for name in settings_of(workload, algorithm=algorithm)
    }


def known(verb, rest):
    """The names that flags and fields of a command may have."""
    if verb not in OF_SETTINGS:
        return flags_of(verb)
    chosen = choices(rest)
    named = not any(PLACEHOLDER.search(text) or ":" in text for text in chosen.values())
    if rest and rest[0] in registry.names() and named:
        return flags_of(verb) | settings_of(rest[0], **chosen)
    return flags_of(verb) | settings_of_all()


def wrong_words(words):
    """What of a command's words the parser does not know."""
    verb, *rest = words
    if verb == "help":
        return [word for word in rest if word not in VERBS and not PLACEHOLDER.search(word)]
    if verb not in VERBS:
        return [] if verb.startswith("-") or PLACEHOLDER.search(verb) else [verb]
    names = {"help", "explain", *known(verb, rest)}
    given = [word.removeprefix("--").partition("=")[0] for word in rest if re.match(r"--\w|[a-z][a-z_.]*=", word)]
    found = [name.replace("-", "_") for name in given if not PLACEHOLDER.search(name)]
    return [name for name in found if name not in names and name.removeprefix("no_") not in names]


# Links, commands and blocks of all pages


@by_page
def test_every_link_of_a_page_leads_somewhere(page):
    links = re.findall(r"\]\(([^)#\s]+)", page.read_text())
    # The reference is written when the site is built.
    made = {f"docs/reference/{name}.md" for name in ("commands", "settings")}
    targets = [(page.parent / link).resolve() for link in links if "://" not in link]
    assert [t for t in targets if not t.exists() and str(t.relative_to(ROOT)) not in made] == []


@by_page
def test_every_command_of_a_page_has_flags_that_exist(page):
    assert [(" ".join(words), wrong) for words in commands(page) if (wrong := wrong_words(words))] == []


def test_a_wrong_verb_flag_or_field_on_a_page_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "Say `lockstep trian snake` or `lockstep train snake --learning-rat 1`.\n\n```bash\n"
        "lockstep train control task=walker-walk stepz=3  # a comment\nlockstep runs --jsn\n"
        "torchrun --nproc-per-node=4 -m lockstep train snake \\\n    --gird-size 8\n```\n\n"
        "    lockstep eval RUN --epsiodes 3         what it does --not-a-flag\n\n"
        "```console\n$ lockstep report RUN --pgn x\nlockstep this is output --of-it\n```\n"
    )
    found = [wrong_words(words) for words in commands(page)]
    assert sorted(found) == [["epsiodes"], ["gird_size"], ["jsn"], ["learning_rat"], ["pgn"], ["stepz"], ["trian"]]


@pytest.fixture
def beside_examples(tmp_path, monkeypatch):
    """A new working directory that holds the examples."""
    for example in EXAMPLES.glob("*.py"):
        shutil.copy(example, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH")))))


ELSEWHERE = {"data", "data_dir", "config", "branch_from", "load_model", "network", "model"}
"""Settings that name files or runs, which a page's reader has and the tests have not."""


def can_be_planned(words):
    """Whether a command trains something that is at hand, with every value given."""
    verb, target, *rest = [*words, "", ""]
    names = {re.split("[= ]", word.removeprefix("--"))[0].replace("-", "_") for word in rest}
    own = re.fullmatch(r"(?:\./)?(\w+)(?:\.py|:\w+|\.py:\w+)", target)
    at_hand = target in registry.names() or (own is not None and (EXAMPLES / f"{own[1]}.py").is_file())
    concrete = not any(PLACEHOLDER.search(word) for word in words)
    return verb in ("train", "plan") and at_hand and concrete and not names & {*ELSEWHERE, "explain", "help"}


def test_every_training_on_a_page_has_values_that_are_allowed(beside_examples, capsys):
    pages = [page for page in PAGES if page.name != "seeds.md"]  # tests/test_guides.py has that one
    found = {shlex.join(words[1:]): page for page in pages for words in commands(page) if can_be_planned(words)}
    assert len(found) > 40
    for line, page in found.items():
        here = re.sub(r"--gpus \d+", "--ranks 1", line).replace("--device cuda", "--device cpu")
        assert main(["plan", *shlex.split(here)]) == 0, f"{page}: {line}: {capsys.readouterr().err}"


@by_page
def test_every_python_block_of_a_page_is_python(page):
    for block in blocks(page):
        if block.language == "python":
            ast.parse(block.text)


def test_every_page_is_listed_on_the_site_once():
    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    listed = re.findall(r"[\w/-]+\.md", str(site["nav"]))
    pages = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    pages |= {f"reference/settings-{name}.md" for name in registry.names()}
    assert pages <= set(listed) and len(listed) == len(set(listed))


def test_every_public_name_is_in_the_reference():
    named = re.findall(r"^::: [\w.]+\.(\w+)$", (ROOT / "docs" / "reference" / "python.md").read_text(), re.M)
    assert set(lockstep.__all__) - {"__version__"} <= set(named)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the site, built without a warning."""
    pytest.importorskip("mkdocs", reason="pip install 'lockstep-train[docs]'")
    folder = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    built = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return folder


def test_the_site_shows_what_the_program_knows_and_fetches_nothing(site):
    # A script, a style sheet, a font or an image is fetched when a page is opened; a link is not.
    fetched = re.compile(r"""<(?:(?:script|img|iframe)[^>]*src|link[^>]*href)=["']?(?:https?:)?//""")
    pages = list(site.rglob("*.html"))
    assert len(pages) > 50 and [page for page in pages if fetched.search(page.read_text())] == []
    assert [css for css in site.rglob("*.css") if re.search(r"url\(['\"]?https?:", css.read_text())] == []
    # What the program knows is on its pages.
    text = (site / "reference" / "commands.html").read_text()
    assert all(f'id="{verb}"' in text for verb in VERBS) and "--rdzv-endpoint" in text
    assert "gae_lambda" in (site / "reference" / "settings-snake.html").read_text()
    # A flag within a line stays in one piece.
    assert '<code><span class="flag">--env-id</span></code>' in (site / "own-environment.html").read_text()


BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
SHOWN_WRONG = """() => [
    document.documentElement.scrollWidth > document.documentElement.clientWidth ? ["wider than the screen"] : [],
    [...document.images].filter(image => !image.naturalWidth).map(image => image.src),
].flat()"""


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine")
@pytest.mark.parametrize("width", [390, 1440])
def test_no_page_of_the_site_is_wider_than_the_screen_or_lacks_a_picture(site, width):
    sync_api = pytest.importorskip("playwright.sync_api", reason="the pages are opened by playwright")
    with sync_api.sync_playwright() as playwright:
        # Chromium's own sandbox does not work for root, which tests in containers are.
        browser = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": width, "height": 900})
        wrong = {}
        for path in site.rglob("*.html"):
            page.goto(path.as_uri())
            wrong[path.name] = page.evaluate(SHOWN_WRONG)
        browser.close()
    assert {name: problems for name, problems in wrong.items() if problems} == {}


# Tutorials, as a reader follows them

SHORT = {"max_updates": 2, "threads": 1, "eval_every": 0, "device": "cpu"}
MOST = {"n_envs": 64, "batch_size": 256}
"""Sizes that a tutorial for GPUs may give, cut to these here."""
STARTS_RANKS = ("verify",)
"""Commands that take longer than a reader of the short tests waits; `make test-slow` runs them."""
TUTORIALS = ["start.md", "own-environment.md", "own-data.md", "own-algorithm.md", "coming-from/sb3.md"]
TUTORIALS += ["coming-from/lightning.md", "coming-from/isaac-lab.md", "coming-from/cleanrl.md"]
WORKLOADS = [f"workloads/{name}.md" for name in ("index", "snake", "snakes3v3", "trading", "control", "cricket")]


def shortened(words):
    """A command with sizes that take a second: the preset for tests, few updates, few episodes."""
    # Two ranks are two more processes; tests of ranks are elsewhere.
    line = re.sub(r" --(ranks|gpus) \d+(?= |$)", "", shlex.join(words))
    line = re.sub(r"--preset (small|base)", "--preset debug", line)
    line = re.sub(r"--(episodes|games) \d+", r"--\1 2", line)
    line = re.sub(r"--n-envs \d{3,}", "--n-envs 64", re.sub(r"--batch-size \d{4,}", "--batch-size 256", line))
    words = shlex.split(line)
    if words[0] == "train" and "--explain" not in words:
        return [*words, *(word for key, value in SHORT.items() for word in (f"--{key}".replace("_", "-"), str(value)))]
    return [*words, "--ranks", "1", "--steps", "60"] if words[0] == "check" else words


@pytest.fixture
def followed(beside_examples, monkeypatch, capsys):
    """Follow a page beside the examples; runs that it starts are short."""
    train = api.train

    def short(*given, **settings):
        sizes = {name: min(most, settings[name]) for name, most in MOST.items() if name in settings}
        return train(*given, **(settings | sizes | SHORT))

    monkeypatch.setattr(api, "train", short)
    monkeypatch.setattr(lockstep, "train", api.train, raising=False)

    def follow(page, skipped):
        names = {}
        for block in blocks(ROOT / "docs" / page):
            if block.not_run:
                continue
            if block.language == "python":
                exec(compile(block.text.replace("learn(100_000)", "learn(1_000)"), page, "exec"), names)
            for line in block.lines():
                words = shlex.split(line)
                if words[:1] == ["cd"]:
                    os.chdir(words[1])
                elif words[:1] == ["lockstep"] and words[1] not in skipped:
                    assert main(shortened(words[1:])) == 0, f"{line}\n{capsys.readouterr().err}"

    return follow


@pytest.mark.parametrize("page", TUTORIALS)
def test_every_block_of_a_tutorial_runs(followed, page):
    followed(page, skipped=STARTS_RANKS)


@pytest.mark.slow
@pytest.mark.parametrize("page", [*TUTORIALS, *WORKLOADS])
def test_every_proof_of_a_tutorial_holds_and_the_workloads_pages_run(followed, page):
    followed(page, skipped=())
