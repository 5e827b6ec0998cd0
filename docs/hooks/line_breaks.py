"""Where code may be broken, so that pages fit a phone and can be copied from.

A flag is not broken at its hyphens, since a reader would copy half of `--sync`, nor is 1e-7 in a table. A path, a list
or a name in a table is broken after a slash, a comma, an equals sign or an underscore, before it is broken anywhere. A
message of one line is wrapped.
"""

import re
from collections.abc import Callable

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

CODE = re.compile(r"(?<!<pre>)(?<!</span>)<code>([^<]+)</code>")
"""Code within a line, which has no tags inside; blocks of code stay as they are."""
FLAG = re.compile(r"((?<![\w-])--?[a-z][\w-]*)")
LONG_FLAG = 24
CELL = re.compile(r"<td[^>]*>.*?</td>", re.DOTALL)
LONG = 15
"""Letters of a word that a narrow column of a phone has no room for."""
WORD = re.compile(rf"\S{{{LONG},}}")
PLACE = re.compile(r"(?<=[^\s/,=])[/,=](?=[^\s/,=])")
COMMA = re.compile(r"(?<=\w),(?=\w)")
UNDERSCORE = re.compile(r"(?<=[^_])_(?=[^_])")
SMALL_NUMBER = re.compile(r"(?<![\w.-])\d[\d.]*e-\d+\b")
MESSAGE = re.compile(r'<div class="language-text highlight">(<pre><span></span><code>)([^\n<]+)\n(?=</code></pre>)')


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Mark flags, places to break at and messages, for the style sheet and the browser."""
    # In a checkout a bar within code has to be escaped in a table; here it does not.
    html = CELL.sub(lambda cell: CODE.sub(lambda code: _code(code[1].replace("\\|", "|"), _in_table), cell[0]), html)
    html = CELL.sub(lambda cell: SMALL_NUMBER.sub(r'<span class="flag">\g<0></span>', cell[0]), html)
    html = CODE.sub(lambda code: _code(code[1], _in_text), html)
    html = MESSAGE.sub(_message, html)
    # A column of row numbers is as narrow as they are.
    return html.replace("<th>#</th>", '<th class="number">#</th>')


def _code(text: str, word: Callable[[re.Match[str]], str]) -> str:
    parts = FLAG.split(text)
    parts[::2] = [WORD.sub(word, part) for part in parts[::2]]
    parts[1::2] = [_flag(part) for part in parts[1::2]]
    return f"<code>{''.join(parts)}</code>"


def _in_table(word: re.Match[str]) -> str:
    parts = PLACE.sub(r"\g<0><wbr>", word[0]).split("<wbr>")
    return "<wbr>".join(part if len(part) < LONG else UNDERSCORE.sub("_<wbr>", part) for part in parts)


def _in_text(word: re.Match[str]) -> str:
    return COMMA.sub(",<wbr>", word[0])


def _message(block: re.Match[str]) -> str:
    text = FLAG.sub(lambda flag: _flag(flag[0]), block[2])
    return f'<div class="language-text highlight message">{block[1]}{text}\n'


def _flag(flag: str) -> str:
    parts = re.split("(?<=_)", flag) if len(flag) > LONG_FLAG else [flag]
    return "<wbr>".join(f'<span class="flag">{part}</span>' for part in parts)
