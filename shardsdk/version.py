"""The version of this distribution, written here and nowhere else.

The build reads it from this file, `sharder version` and the clients' user
agents import it: running from a checkout needs no installed package.
"""

from typing import Final

VERSION: Final = "0.1.0"
#: As what a program that has not said its name introduces itself to API servers.
SDK_AGENT: Final = f"shardsdk/{VERSION}"
