"""Certificates for a process that keeps none: made when it starts, renewed while it runs, gone with it."""

from __future__ import annotations

from shardsdk.errors import ConfigurationError, ShardingError
from shardsdk.kube.clock import Clock
from shardsdk.serving.certificate_spec import Lifetimes, ServingNames
from shardsdk.serving.published import Published, make_pair
from shardsdk.serving.x509_messages import Judgement, JudgeSecret, Refused
from shardsdk.serving.x509_process import Ask, ask_here

#: How often it is looked whether something is due.
POLL_SECONDS = 60.0


class ShortLived:
    """Publishes an authority and a certificate for `names`; nobody else ever has them."""

    def __init__(
        self, *, names: ServingNames, clock: Clock, lifetimes: Lifetimes | None = None, ask: Ask = ask_here
    ) -> None:
        self.published: Published = Published()
        self._names = names
        self._clock = clock
        self._lifetimes = lifetimes or Lifetimes()
        self._ask = ask
        self._judged: Judgement | None = None

    async def run(self) -> None:
        """Keep `published` current, for ever."""
        while True:
            await self.refresh()
            await self._clock.sleep(POLL_SECONDS)

    async def refresh(self) -> None:
        """Make what is missing or due.  Raises: ShardingError."""
        now, known = self._clock.now(), self._judged
        if known is not None and now < known.due_at:
            return
        answer = await self._ask(JudgeSecret(None if known is None else known.data, self._names, now, self._lifetimes))
        match answer:
            case Judgement():
                self._judged = answer
                pair = make_pair(answer.certificate, answer.key, answer.expires_at)
                self.published.publish(pair, answer.bundle)
            case Refused(message):
                raise ConfigurationError(message)
            case _:
                raise ShardingError(f"no judgement: {type(answer).__name__}")
