"""Formulas of the docs site as MathML, made when the site is built: a browser needs no script and no network for them.

A hook of mkdocs. Arithmatex finds the formulas between dollars and leaves them alone; this puts MathML in their place.
It also makes every picture a link to itself, for those with small print.
"""

from __future__ import annotations

import html
import re
from typing import Any

from latex2mathml.converter import convert

INLINE = re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>', re.DOTALL)
BARS = re.compile(r"\|([^|]+)\|")  # |z|: a fence on both sides, not two operators with room around them
PICTURE = re.compile(r'<img [^>]*src="([^"]+\.png)"[^>]*>')
DISPLAY = re.compile(r'<div class="arithmatex">\s*\\\[(.*?)\\\]\s*</div>', re.DOTALL)


def mathml(latex: str, display: str) -> str:
    """One formula. A command that is not known would stand in it as a word: that is an error."""
    made = convert(BARS.sub(r"\\left|\1\\right|", html.unescape(latex).strip()), display=display)
    unknown = re.findall(r">(\\[a-zA-Z]+)<", made)
    if unknown:
        raise ValueError(f"LaTeX that latex2mathml does not know: {', '.join(unknown)} in {latex!r}")
    return made


def with_mathml(page: str) -> str:
    page = INLINE.sub(lambda found: mathml(found[1], "inline"), page)
    return DISPLAY.sub(lambda found: f'<div class="formula">{mathml(found[1], "block")}</div>', page)


def on_page_content(html: str, **_: Any) -> str:
    """What mkdocs calls with the body of each page."""
    return PICTURE.sub(lambda found: f'<a href="{found[1]}">{found[0]}</a>', with_mathml(html))
