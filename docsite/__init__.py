"""Builds the documentation: what is printed from the code, the diagrams, and the site.

    python -m docsite          # print tables and draw diagrams anew, into docs/
    python -m mkdocs build     # the site, in site/ (mkdocs.yml); `make docs` does both

Guarantees, each with the test that proves it:

- What docs/ says of fields, flags, metrics, states and messages is what the code
  says (tests/docs/test_printed.py).
- Every link inside the documentation, and from it into the repository, leads
  somewhere; the site fetches nothing from elsewhere (tests/docs/test_site.py).
- Every fenced block was run, applied or parsed (tests/docs/test_blocks.py).

Does not: look at links to other sites (`python -m docsite links` lists them).
"""
