"""Flags in a line of text are not broken at their hyphens: a reader would copy half of `--sync`."""

import re

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

# Code within a line has no tags inside, and a coloured block has many; in a plain block, which is never broken, a mark
# changes nothing.
CODE = re.compile(r"<code>[^<]+</code>")
FLAG = re.compile(r"(?<![\w-])--?[a-z][\w-]*")


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Mark flags, for the style sheet to keep them in one piece."""
    return CODE.sub(lambda code: FLAG.sub(r'<span class="flag">\g<0></span>', code[0]), html)
