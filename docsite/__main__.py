"""`python -m docsite`: bring docs/ up to the code; `links`: list the links to other sites."""

from __future__ import annotations

import re
import sys

from docsite.pages import DOCS, EXTERNAL, read_pages
from docsite.printed import print_anew


def main() -> None:
    """Do what the first argument says."""
    match sys.argv[1:]:
        case []:
            for path in print_anew():
                sys.stdout.write(f"printed {path.relative_to(DOCS.parent)}\n")
        case ["links"]:
            found = {link.rstrip(".,;") for text in read_pages().values() for link in re.findall(EXTERNAL, text)}
            sys.stdout.write("".join(f"{link}\n" for link in sorted(found)))
        case _:
            sys.exit("usage: python -m docsite [links]")


if __name__ == "__main__":
    main()
