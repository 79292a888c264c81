"""Log lines: one-liners for people, JSON for machines; facts that show whoever prints them.

    from shardsdk.logs import LogFormat, LogLevel, setup_logging

    setup_logging(LogLevel.INFO, LogFormat.JSON)

Every line has a constant message, and its facts (object, error, next attempt)
as fields in `extra`.  `setup_logging` prints both.  In a program with a format
of its own, or with none, fields do not show by themselves, so the loggers of
`logger_of` put them into the text as well: `record.msg` is the constant message,
`record.getMessage()` the message with its facts.

Refuses: to spread one event over several lines; line breaks in values are
escaped.  Only the stack of an error that nobody expected follows its line.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping, MutableMapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final, TextIO, assert_never

import msgspec

from shardsdk.errors import ShardingError

__all__ = ["BoundLogger", "JsonFormatter", "LogFormat", "LogLevel", "TextFormatter", "setup_logging"]

log: Final = logging.getLogger(__name__)


class LogFormat(StrEnum):
    """How lines look."""

    TEXT = "text"
    JSON = "json"


class LogLevel(StrEnum):
    """The least important lines that are shown."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"

    @property
    def number(self) -> int:
        """The level as `logging` counts it."""
        return logging.getLevelNamesMapping()[self.name]


#: Libraries that tell every request or connection; below this level they are noise.
_QUIET: Final = {
    "aiohttp": logging.WARNING,
    "asyncio": logging.WARNING,
    "kubernetes": logging.WARNING,
    "uvicorn": logging.WARNING,
}
#: What every record has by itself; all else came from `extra`.
_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
#: What a call of `logging` may be given besides facts.
_OF_LOGGING: Final = frozenset({"exc_info", "stack_info", "stacklevel", "extra"})
_RESERVED: Final = frozenset({"time", "level", "logger", "message", "template", "error", "stack"})
_UNREADABLE: Final = "(its text cannot be read)"
#: Fields longer than this are cut: a value may be a whole answer of a peer.
MAX_FIELD_CHARACTERS: Final = 4_000
#: The same of a message with its values, and of a stack, which says last what was raised: a reconcile may quote what
#: somebody has in an object, a megabyte at each attempt.
MAX_LINE_CHARACTERS: Final = 8_000
MAX_STACK_CHARACTERS: Final = 32_000
#: Problems of one object that are told: it may have one for each entry of a list of hundreds of thousands.
MAX_PROBLEMS: Final = 50


def logger_of(name: str) -> FactLogger:
    """A module's logger, whose lines show their facts."""
    return FactLogger(logging.getLogger(name))


class FactLogger(logging.LoggerAdapter[logging.Logger]):
    """A logger whose messages name what its calls give in `extra`."""

    def process(self, msg: object, kwargs: MutableMapping[str, Any]) -> tuple[object, MutableMapping[str, Any]]:
        """The message with its facts."""
        facts = kwargs.get("extra")
        return (Told(str(msg), facts) if facts else msg), kwargs


class BoundLogger(logging.LoggerAdapter[logging.Logger]):
    """A logger whose every line has the facts that it is bound to, and those that a call gives by keyword.

    log.info("applied", replicas=3)
    """

    def __init__(self, logger: logging.Logger, facts: Mapping[str, object]) -> None:
        super().__init__(logger, facts)
        self.facts: Mapping[str, object] = facts

    def process(self, msg: object, kwargs: MutableMapping[str, Any]) -> tuple[object, MutableMapping[str, Any]]:
        """The message with its facts."""
        for_logging = {name: value for name, value in kwargs.items() if name in _OF_LOGGING}
        given = {name: value for name, value in kwargs.items() if name not in _OF_LOGGING}
        facts = {**self.facts, **(for_logging.pop("extra", None) or {}), **given}
        # What a record has by itself cannot be given it a second time.
        extra = {f"field_{name}" if name in _STANDARD else name: value for name, value in facts.items()}
        return Told(str(msg), facts), {**for_logging, "extra": extra}


class Told(str):
    """A constant message, equal to itself without facts; as a text it has them behind it."""

    __slots__ = ("_facts",)
    _facts: Mapping[str, object]

    def __new__(cls, message: str, facts: Mapping[str, object]) -> Told:
        """`facts` are as in `extra`."""
        told = super().__new__(cls, message)
        told._facts = facts
        return told

    def __str__(self) -> str:
        facts = " ".join(f"{name}={_render_value(_bounded(value))}" for name, value in self._facts.items())
        # logging fills in a message that has places for values: what it finds in the facts is none.
        return f"{self.bare} {facts.replace('%', '%%') if '%' in self.bare else facts}"

    @property
    def bare(self) -> str:
        """Without the facts."""
        return super().__str__()


def setup_logging_unless_done() -> None:
    """Show lines of level info and above to people on stderr, unless the program has said how it logs."""
    root = logging.getLogger()
    if not root.hasHandlers() and not logging.getLogger(__package__).hasHandlers():
        level = root.level
        setup_logging(LogLevel.INFO, LogFormat.TEXT)
        if level != logging.WARNING:  # not what it is when nobody has set one
            root.setLevel(level)
    enable_loggers()


def enable_loggers() -> None:
    """Have those of this package show their lines again: `logging.config` disables them where it does not name them."""
    ours = [name for name in list(logging.root.manager.loggerDict) if name.split(".")[0] == __package__]
    if disabled := [each for each in map(logging.getLogger, ours) if each.disabled]:
        for logger in disabled:
            logger.disabled = False
        log.warning(
            "Loggers of shardsdk were disabled, and are enabled again: pass disable_existing_loggers=False to"
            " logging.config; what hides lines is a logger's level"
        )


def setup_logging(level: LogLevel, log_format: LogFormat, stream: TextIO | None = None) -> None:
    """Send every logger's lines to `stream` (`None`: stderr) and nowhere else."""
    handler = logging.StreamHandler(stream or sys.stderr)
    match log_format:
        case LogFormat.TEXT:
            handler.setFormatter(TextFormatter())
        case LogFormat.JSON:
            handler.setFormatter(JsonFormatter())
        case _:
            assert_never(log_format)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.number)
    for name, least in _QUIET.items():
        logging.getLogger(name).setLevel(max(level.number, least))


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """The fields of one line: those from `extra`, then the error's message."""
    fields = {
        f"field_{name}" if name in _RESERVED and name != "error" else name: value
        for name, value in vars(record).items()
        if name not in _STANDARD
    }
    error = record.exc_info[1] if record.exc_info else None
    if error is not None:
        fields["error"] = describe_error(error)
    return {name: _bounded(value) for name, value in fields.items()}


def describe_error(error: BaseException) -> str:
    """An error in a line: what it is and what it says, if that can be read; pydantic's without the values it quotes.

    It comes into Events, logs and answers, and a value may be out of a Secret.
    """
    pydantic = sys.modules.get("pydantic_core")
    if pydantic is not None and isinstance(error, pydantic.ValidationError):
        found = error.errors(include_input=False, include_url=False, include_context=False)
        first, more = found[:MAX_PROBLEMS], len(found) - MAX_PROBLEMS
        words = "; ".join(": ".join(filter(None, (".".join(map(str, each["loc"])), each["msg"]))) for each in first)
        words += f"; and {more} more" if more > 0 else ""
    else:
        words = text_of(error)
    return f"{type(error).__name__}: {words}" if words else type(error).__name__


def text_of(value: object) -> str:
    """What somebody's value says, if that can be read: what tells of it is not to go wrong, or to end, by it."""
    try:
        return str(value)
    except KeyboardInterrupt:
        raise  # a person's, who happened to press it now
    except BaseException:  # `sys.exit()`, a panic in an extension module
        return _UNREADABLE


class TextFormatter(logging.Formatter):
    """`2026-01-31T12:00:00.000Z INFO    shardsdk.process.manager: message field=value`."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line, followed by the stack of an unexpected error."""
        parts = [f"{_timestamp(record)} {record.levelname:<7} {record.name}: {one_line(message_of(record))}"]
        parts += [render_field(name, value) for name, value in fields_of(record).items()]
        stack = render_stack(self, record)
        return " ".join(parts) + "".join(f"\n  {one_line(line)}" for line in stack.splitlines())


class JsonFormatter(logging.Formatter):
    """One JSON object: time, level, logger, message, then the fields.

    A message with values in it comes with its `template` (`Lost the lease: %s`), which never changes.
    """

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line; the stack of an unexpected error is a field."""
        line = {
            "time": _timestamp(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": message_of(record),
            **({"template": _template(record)} if record.args else {}),
            **{name: _shown(value) for name, value in fields_of(record).items()},
        }
        stack = render_stack(self, record)
        if stack:
            line["stack"] = stack
        return escape_json(_encode(line))


def _shown(value: Any) -> Any:
    """The value as JSON has it; its text where it is nested too deep, as what somebody has in an object may be."""
    try:
        return _plain(value)
    except RecursionError:
        return text_of(value)


def _plain(value: Any) -> Any:
    """The value with the texts of the objects in it: JSON would show what their `repr` leaves out, as of a Secret."""
    if isinstance(value, dict):
        return {text_of(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(each) for each in value]
    fields = ("__struct_fields__", "__dataclass_fields__", "__attrs_attrs__")
    return text_of(value) if any(hasattr(type(value), each) for each in fields) else value


def _encode(line: dict[str, Any]) -> str:
    try:
        return msgspec.json.encode(line, enc_hook=text_of).decode()
    except UnicodeEncodeError:  # a text with half of a character in it, as of a file's name that is no UTF-8
        return json.dumps(line, default=text_of)


def message_of(record: logging.LogRecord) -> str:
    """Without the facts: a formatter that shows fields shows them there."""
    template = _template(record)
    return _cut(template % record.args if record.args else template, MAX_LINE_CHARACTERS)


def _template(record: logging.LogRecord) -> str:
    return record.msg.bare if isinstance(record.msg, Told) else str(record.msg)


def _timestamp(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def render_stack(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    """The traceback of an error that is not one of ours: ours say in their message what to do."""
    if not record.exc_info or record.exc_info[1] is None or isinstance(record.exc_info[1], ShardingError):
        return ""
    return _cut(formatter.formatException(record.exc_info), MAX_STACK_CHARACTERS)


def printable(text: str) -> str:
    """`text` in its lines, each with everything escaped that could steer a terminal."""
    return text if text.isprintable() else "\n".join(one_line(line) for line in text.split("\n"))


def escape_json(text: str) -> str:
    """JSON that says the same, without what steers terminals or ends lines inside of strings (C1, bidi, U+2028)."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)


def _cut(text: str, most: int) -> str:
    """Its beginning and its end, where it is longer than that."""
    return text if len(text) <= most else f"{text[: most // 2]}[...]{text[-most // 2 :]}"


def _bounded(value: Any) -> Any:
    """The value as it is while it is short (JSON keeps lists and numbers), else the beginning of its text."""
    text = text_of(value)
    if len(text) > MAX_FIELD_CHARACTERS:
        return f"{text[:MAX_FIELD_CHARACTERS]}..."
    return text if isinstance(value, (bytes, BaseException)) or text == _UNREADABLE else value


def render_field(name: str, value: Any) -> str:
    """`name=value` on one line, the value in quotes where it has to be."""
    return f"{name}={_render_value(value)}"


def _render_value(value: Any) -> str:
    text = str(value)
    plain = text and text.isprintable() and not any(character in ' "=' for character in text)
    return text if plain else one_line(json.dumps(text, ensure_ascii=False))


def one_line(text: str) -> str:
    """`text` with everything escaped that could break the line or steer a terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
