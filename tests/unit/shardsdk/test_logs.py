"""Facts of a log line show in whatever format a program logs, and in one that has chosen none."""

from __future__ import annotations

import base64
import io
import ipaddress
import json
import logging
import logging.handlers
import os
import queue
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from shardsdk.errors import Forbidden
from shardsdk.kinds import Secret
from shardsdk.kube.credentials import FixedCredentials
from shardsdk.logs import MAX_PROBLEMS, JsonFormatter, TextFormatter, describe_error, logger_of

ROOT = Path(__file__).parents[3]

#: A controller whose first reconcile is refused; `{before}` is what the program does about its log.
PROGRAM = """
import logging
from shardsdk import controller_for, Resource
from shardsdk.errors import Forbidden
from shardsdk.testing import drive

async def reconcile(context):
    raise Forbidden("secrets: forbidden, allow it by rule X", status=403)

{before}
drive(controller_for(Resource("", "v1", "secrets", "Secret")).reconcile(reconcile),
      [(Resource("", "v1", "secrets", "Secret"), {{"metadata": {{"name": "a"}}}})], raises=False)
"""
#: A manager whose configuration cannot work.
MANAGER = """
import logging
from shardsdk import Manager

{before}
Manager("example", grace_seconds=-1).run()
"""


def lines_of(program: str, before: str = "") -> list[str]:
    """What a program writes to stderr."""
    done = subprocess.run(
        [sys.executable, "-c", program.format(before=before)], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    return done.stderr.splitlines()


@pytest.mark.parametrize(
    ("before", "start"),
    [
        ("", "Reconcile failed; trying again"),
        ("logging.basicConfig()", "WARNING:shardsdk.queueing.workers:Reconcile failed; trying again"),
        ("logging.basicConfig(format='%(levelname)s %(message)s')", "WARNING Reconcile failed; trying again"),
    ],
    ids=["unconfigured", "basicConfig", "a format of one's own"],
)
def test_a_failed_reconcile_shows_object_error_remedy_and_next_attempt(before: str, start: str) -> None:
    line = next(line for line in lines_of(PROGRAM, before) if line.startswith(start))

    assert "namespace=default object=a" in line
    assert 'error="Forbidden: secrets: forbidden, allow it by rule X"' in line
    assert "attempts=1 next_attempt_seconds=" in line


def test_a_manager_in_a_program_that_says_nothing_shows_time_level_and_logger() -> None:
    [line] = lines_of(MANAGER)

    assert line.partition(" ")[2].startswith("CRITICAL shardsdk.process.process: The process cannot run: grace_seconds")


#: What `logging.config` does to loggers that are there already, unless it is told not to.
DISABLED = """
import logging.config, shardsdk.process.manager
logging.config.dictConfig({"version": 1, "formatters": {"short": {"format": "%(levelname)s %(message)s"}},
    "handlers": {"all": {"class": "logging.StreamHandler", "formatter": "short"}},
    "root": {"handlers": ["all"], "level": "INFO"}})
"""


def test_a_manager_enables_the_lines_that_a_configuration_of_logging_has_disabled_and_says_so() -> None:
    warning, critical = lines_of(MANAGER, DISABLED)
    assert warning.startswith("WARNING Loggers of shardsdk were disabled, and are enabled again")
    assert critical.startswith("CRITICAL The process cannot run: grace_seconds")


def test_one_in_a_loop_of_the_programs_says_all_the_same_why_it_ends() -> None:
    program = MANAGER.replace("Manager(", "import asyncio\nasyncio.run(Manager(").replace(".run()", ".run_async())")
    (critical,) = lines_of(program, DISABLED)
    assert critical.startswith("CRITICAL The process cannot run: grace_seconds")


def test_a_manager_leaves_the_format_of_a_program_that_has_one() -> None:
    [line] = lines_of(MANAGER, "logging.basicConfig(format='MINE %(message)s')")

    assert line.startswith("MINE The process cannot run: grace_seconds")


@pytest.fixture
def heard() -> Iterator[tuple[logging.LoggerAdapter[logging.Logger], io.StringIO, logging.Handler]]:
    """A logger with facts, what it writes, and the handler that writes it."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    logger = logging.getLogger("shardsdk.test_facts")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    yield logger_of("shardsdk.test_facts"), stream, handler
    logger.removeHandler(handler)


Heard = tuple[logging.LoggerAdapter[logging.Logger], io.StringIO, logging.Handler]


def test_a_message_with_values_shows_its_facts_whatever_they_hold(heard: Heard) -> None:
    log, stream, _ = heard

    log.warning("Lost the lease: %s", "it was taken", extra={"shard": "a", "why": "100%s\nforged"})

    assert stream.getvalue() == 'Lost the lease: it was taken shard=a why="100%s\\nforged"\n'


def test_facts_are_said_once_where_a_format_shows_fields(heard: Heard) -> None:
    log, stream, handler = heard

    handler.setFormatter(TextFormatter())
    log.warning("Lost the lease: %s", "it was taken", extra={"shard": "a"})
    handler.setFormatter(JsonFormatter())
    log.warning("Lost the lease: %s", "it was taken", extra={"shard": "a"})

    text, line = stream.getvalue().splitlines()
    assert text.endswith("shardsdk.test_facts: Lost the lease: it was taken shard=a")
    assert json.loads(line)["message"] == "Lost the lease: it was taken"
    assert json.loads(line)["template"] == "Lost the lease: %s"


def test_a_text_that_is_no_unicode_is_a_line_all_the_same(heard: Heard) -> None:
    log, stream, handler = heard
    handler.setFormatter(JsonFormatter())

    log.warning("No such file", extra={"file": os.fsdecode(b"caf\xe9.txt"), "port": ipaddress.ip_address("10.0.0.1")})

    line = json.loads(stream.getvalue())
    assert (line["message"], line["file"], line["port"]) == ("No such file", "caf\udce9.txt", "10.0.0.1")


class Unreadable(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


def test_an_error_whose_text_cannot_be_read_is_shown_with_its_stack(heard: Heard) -> None:
    log, stream, handler = heard

    for formatter in (TextFormatter(), JsonFormatter()):
        handler.setFormatter(formatter)
        log.error("Reconcile raised; trying again", extra={"object": "a"}, exc_info=Unreadable())

    text, _, line = stream.getvalue().splitlines()
    assert text.endswith('Reconcile raised; trying again object=a error="Unreadable: (its text cannot be read)"')
    shown = json.loads(line)
    assert (shown["object"], shown["error"]) == ("a", "Unreadable: (its text cannot be read)")
    assert "Unreadable" in shown["stack"]


class Leaving:
    """Of a value and of an error alike."""

    def __str__(self) -> str:
        sys.exit("not to be shown")


class LeavingError(Leaving, Exception):
    pass


def test_a_value_that_cannot_be_shown_ends_nobody(heard: Heard) -> None:
    log, stream, handler = heard
    for formatter in (TextFormatter(), JsonFormatter(), logging.Formatter("%(message)s field_a")):
        handler.setFormatter(formatter)
        log.error("Not so", extra={"field_a": Leaving(), "field_b": [Leaving()]}, exc_info=LeavingError())
    lines = [line for line in stream.getvalue().splitlines() if "field_a" in line]
    assert [line.count("(its text cannot be read)") for line in lines] == [2, 3, 1]
    assert json.loads(lines[1])["error"] == "LeavingError: (its text cannot be read)"


def test_a_value_that_is_nested_deep_or_has_names_that_are_no_texts_is_a_line_of_json(heard: Heard) -> None:
    log, stream, handler = heard
    handler.setFormatter(JsonFormatter())
    deep: list[Any] = json.loads("[" * 700 + "]" * 700)
    around: list[Any] = []
    around.append(around)

    log.info("Seen", extra={"deep": deep, "around": around, "pairs": {("a", 1): "caf\udce9"}})

    shown = json.loads(stream.getvalue())
    assert shown["deep"] in (str(deep), deep)  # how deep is too deep is Python's matter
    assert shown["around"] == "[[...]]"
    assert shown["pairs"] == {"('a', 1)": "caf\udce9"}


def test_what_is_searched_for_never_changes(heard: Heard, caplog: pytest.LogCaptureFixture) -> None:
    log, _, _ = heard
    logging.getLogger("shardsdk.test_facts").addHandler(caplog.handler)

    log.warning("Reconcile failed; trying again", extra={"object": "a"}, exc_info=Forbidden("no", status=403))

    [record] = caplog.records
    assert record.msg == "Reconcile failed; trying again"
    assert (record.filename, record.funcName) == (
        Path(__file__).name,
        "test_what_is_searched_for_never_changes",
    )


def test_facts_are_said_once_behind_a_queue_that_leaves_records_as_they_are(heard: Heard) -> None:
    """As docs/sdk/running.md shows it."""

    class RecordHandler(logging.handlers.QueueHandler):
        def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
            return record

    log, stream, handler = heard
    handler.setFormatter(JsonFormatter())
    records: queue.SimpleQueue[logging.LogRecord] = queue.SimpleQueue()
    log.logger.handlers[:] = [RecordHandler(records)]
    listener = logging.handlers.QueueListener(records, handler)
    listener.start()

    log.warning("Lost the lease: %s", "it was taken", extra={"shard": "a"})

    listener.stop()
    log.logger.handlers[:] = [handler]
    line = json.loads(stream.getvalue())
    assert (line["message"], line["template"], line["shard"]) == (
        "Lost the lease: it was taken",
        "Lost the lease: %s",
        "a",
    )


def test_json_shows_of_objects_what_their_text_does(heard: Heard) -> None:
    log, stream, handler = heard
    handler.setFormatter(JsonFormatter())
    secret = Secret("login", data={"password": b"s3cret"})
    credentials = FixedCredentials("Bearer s3cret")

    facts = {"one": secret, "more": [(secret, 1)], "by_name": {"a": secret}, "plain": {"a": [1, None]}}
    log.info("Seen", extra={**facts, "credentials": credentials})

    shown = json.loads(stream.getvalue())
    assert shown["one"] == str(secret)
    assert shown["more"] == [[str(secret), 1]]
    assert shown["by_name"] == {"a": str(secret)}
    assert shown["plain"] == {"a": [1, None]}
    assert "s3cret" not in stream.getvalue()
    assert base64.b64encode(b"s3cret").decode() not in stream.getvalue()


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()], ids=["text", "json"])
def test_a_megabyte_of_somebodys_object_makes_no_megabyte_of_log(heard: Heard, formatter: logging.Formatter) -> None:
    log, stream, handler = heard
    handler.setFormatter(formatter)

    log.warning("Waiting for the lease: %s", f"{'x' * 1_000_000} holds it")
    try:
        raise ValueError(f"no number: {'x' * 1_000_000}, says whoever parses it")
    except ValueError:
        log.exception("Reconcile failed")

    said = stream.getvalue()
    assert len(said) < 60_000
    assert "holds it" in said
    assert "says whoever parses it" in said


def test_of_an_objects_problems_the_first_are_told_and_how_many_more_there_are() -> None:
    class Spec(BaseModel):
        sizes: list[int]

    with pytest.raises(ValidationError) as found:
        Spec.model_validate({"sizes": ["none"] * 1_000})

    words = describe_error(found.value)
    assert "sizes.0: " in words
    assert words.endswith(f"; and {1_000 - MAX_PROBLEMS} more")
