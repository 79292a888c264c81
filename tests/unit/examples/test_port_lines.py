"""Each port takes fewer lines than what it is a port of."""

from __future__ import annotations

import pytest

from docsite.ports import PORTS, Port, count


@pytest.mark.parametrize("port", PORTS, ids=lambda port: port.name)
def test_a_port_is_shorter_than_its_original(port: Port) -> None:
    assert 0 < port.lines < port.original


def test_what_counts() -> None:
    assert count('# no\n\n"""yes"""\n    # no\nx = 1  # yes\n') == 2
