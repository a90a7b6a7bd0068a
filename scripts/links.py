#!/usr/bin/env python3
"""Checks the links between the pages that rustdoc has written: `scripts/links.py DOC PACKAGE...`.

Links to other sites are not followed. Names that rustdoc could not resolve count as broken, except in documentation that is
inherited from a crate that has no pages there.
"""

import os
import re
import sys
from functools import cache
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

# Relative links in the documentation of `tracing`, on every type that its blanket implementations cover.
FOREIGN = {"dispatcher#setting-the-default-subscriber"}


class Page(HTMLParser):
    def __init__(self):
        super().__init__()
        self.anchors, self.links = set(), []

    def handle_starttag(self, _, attributes):
        attributes = dict(attributes)
        self.anchors.update(attributes[name] for name in ("id", "name") if attributes.get(name))
        self.links += [attributes[name] for name in ("href", "src") if attributes.get(name)]


@cache
def read(path):
    page = Page()
    with open(path, encoding="utf-8") as file:
        page.feed(file.read())
    return page


@cache
def final(path):
    """Follows a page that leads on to another: rustdoc writes them for items of private modules."""
    if os.path.isdir(path):
        path = os.path.join(path, "index.html")
    if path.endswith(".html") and os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            found = re.search(r'http-equiv="refresh" content="0;URL=([^"#]+)', file.read(400))
        if found:
            return os.path.normpath(os.path.join(os.path.dirname(path), found[1]))
    return path


def is_broken(path, link):
    url = urlsplit(link)
    if "::" in link:
        # A path of Rust that rustdoc left as it was.
        return link.startswith("tollgate")
    if url.scheme or url.netloc or link in FOREIGN:
        return False
    target = final(os.path.normpath(os.path.join(os.path.dirname(path), unquote(url.path))) if url.path else path)
    if not os.path.exists(target):
        return True
    # The lines of source pages are numbered by a script.
    if not url.fragment or not target.endswith(".html") or target.endswith(".rs.html"):
        return False
    return not {url.fragment, unquote(url.fragment)} & read(target).anchors


if len(sys.argv) < 3:
    sys.exit(__doc__.splitlines()[0])
root, packages = os.path.abspath(sys.argv[1]), sys.argv[2:]
pages = [
    os.path.join(directory, name)
    for package in packages
    for directory, _, names in os.walk(os.path.join(root, package))
    for name in names
    if name.endswith(".html")
]
broken = sorted({(os.path.relpath(path, root), link) for path in pages for link in read(path).links if is_broken(path, link)})
print(f"{len(pages)} pages, {sum(len(read(path).links) for path in pages)} links, {len(broken)} broken")
for path, link in broken:
    print(f"{path}: {link}", file=sys.stderr)
sys.exit(bool(broken) or not pages)
