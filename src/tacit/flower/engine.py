"""The engine: one exchange is one trip through Flower's Grid."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeVar

import httpx
from flwr.app import ConfigRecordValues, Error, Message
from flwr.serverapp import Grid

from tacit.errors import LinkError, TacitError, WireError
from tacit.flow import ClientId, Frames, Gather, party_name
from tacit.flower import envelope

Seconds = Mapping[str, float]
_Found = TypeVar("_Found")

FIRST_PAUSE, LONGEST_PAUSE = 0.02, 0.5  # between looks for replies
_TRIES = 5  # before an unreachable SuperLink ends the run
_FETCHED = 1 << 26  # bytes of replies that are fetched at a time, as far as the requests' lengths tell
_PUSHED = 256  # requests whose lists of chunks are pushed at a time: what is before a SuperLink may refuse long ones
_LONGEST_REASON = 300


class FlowerEngine:
    """Sends every request to the node of its party and returns what came back in time.

    A missing, late or error reply is a drop-out. Replies to requests that are gathered are handed over as they arrive,
    and fetched a few at a time, so that however many clients have answered a few vectors are in memory. Flower itself
    cuts every frame into chunks of a few megabytes, so that none of its messages is as long as a frame.

    Attributes:
        nodes: Flower's number of each party's node; one node can be several parties.
        terms: what every request says of the run beside the party's number.
        failures: of the last trip, the errors that nodes answered with.
    """

    name = "flower"

    def __init__(
        self,
        *,
        grid: Grid,
        deadline: float,
        note: Callable[[str], None] = lambda _: None,
        on_reply: Callable[[], None] = lambda: None,
        on_trip: Callable[[float, Sequence[Seconds]], None] = lambda _, __: None,
        pause: Callable[[float], None] = time.sleep,
        message_type: str = envelope.MESSAGE_TYPE,
        most: int | None = None,
    ) -> None:
        """Make the engine.

        Args:
            grid: Flower's way to the nodes.
            deadline: the seconds a trip may take; who has not answered by then has dropped out.
            note: is told of every drop-out and why.
            on_reply: is called when a reply has arrived.
            on_trip: is told the seconds of a trip, and each node's own by stage.
            pause: waits.
            message_type: which function of the nodes' app is called; Flower's words for it.
            most: how many requests are on their way at a time; all of a trip if None.
        """
        self._most = most
        self._grid = grid
        self._deadline = deadline
        self._note = note
        self._on_reply = on_reply
        self._on_trip = on_trip
        self._pause = pause
        self._message_type = message_type
        self.terms: Mapping[str, ConfigRecordValues] = {}
        self.nodes: dict[ClientId, int] = {}
        self.failures: dict[int, Error] = {}
        self._one_by_one = False  # since somebody sent what Flower can't read

    def exchange(self, requests: Frames) -> Frames:
        """Deliver every request and return the replies that arrived before the deadline."""
        replies: dict[ClientId, bytes] = {}
        send = requests.receive if isinstance(requests, Gather) else replies.__setitem__
        asked = []
        for party, frame in requests.items():
            if party in self.nodes:
                asked.append((party, self.nodes[party], frame))
            else:
                self._note(f"{party_name(party)} has dropped out: no node answers for it.")
        for party, _, reply in self._trip(asked):
            if isinstance(reply, WireError):  # one node must not end a round by what it sends
                self._note(f"{reply} It counts as a drop-out.")
            else:
                send(party, reply)
        return replies

    def greet(self, frame: bytes, nodes: Iterable[int]) -> dict[int, bytes | WireError]:
        """Ask nodes of which it is not yet known who they are.

        Returns what each answered by its number: a frame, or what is wrong with what no node of Tacit's sends.
        """
        return {node: reply for _, node, reply in self._trip([(0, node, frame) for node in nodes])}

    def present(self) -> frozenset[int]:
        """Return the nodes that are connected."""
        return frozenset(self._insist(self._grid.get_node_ids))

    def _trip(self, asked: Sequence[tuple[ClientId, int, bytes]]) -> Iterator[tuple[ClientId, int, bytes | WireError]]:
        """Send the requests, and yield party, node and frame of each reply, or the error that it is no frame."""
        start = time.monotonic()
        self.failures = {}
        waiting: dict[str, tuple[ClientId, int]] = {}
        ahead = list(asked)  # what is not yet sent
        most = self._most or len(asked)
        longest = max((len(frame) for _, _, frame in asked), default=0)
        few = max(1, _FETCHED // max(longest, 1))
        worked: list[Seconds] = []
        pause = FIRST_PAUSE
        last = False  # who looked for the last time after the end has seen all that came before it
        while (waiting or ahead) and not last:
            last = time.monotonic() - start >= self._deadline
            if ahead and 2 * len(waiting) <= most:
                free = most - len(waiting)
                waiting |= self._push(ahead[:free])
                ahead = ahead[free:]
            arrived = False
            for message in self._fetched(waiting, few):
                arrived = True
                known = waiting.pop(message.metadata.reply_to_message_id, None)
                if known is None:
                    self._note(f"Node {message.metadata.src_node_id} answered twice; its first answer counts.")
                    continue
                party, node = known
                if not message.has_error():
                    worked.append(envelope.seconds_of(message))
                frame = self._frame(message, party, node)
                if isinstance(frame, bytes):
                    self._on_reply()
                if frame is not None:
                    yield party, node, frame
            if (waiting or ahead) and not last:
                pause = FIRST_PAUSE if arrived else min(1.3 * pause, LONGEST_PAUSE)
                self._pause(pause)
        for party, node in (*waiting.values(), *((party, node) for party, node, _ in ahead)):
            self._note(f"{party_name(party)} (node {node}) has dropped out: no answer within {self._deadline:g} s.")
        self._on_trip(time.monotonic() - start, worked)

    def _fetched(self, waiting: dict[str, tuple[ClientId, int]], few: int) -> Iterator[Message]:
        """Yield the replies that have arrived, a few in memory at a time.

        What a node sends is put together by Flower before anybody can look at it. Where that fails, one node sent
        something that is no message; who was fetched beside it may be lost with it, and from then on nobody is.
        """
        numbers = list(waiting)
        while numbers:
            size = 1 if self._one_by_one else few
            some, numbers = numbers[:size], numbers[size:]
            try:
                messages = self._insist(partial(self._pull, some))
            except TacitError:
                raise
            except Exception as error:  # whatever Flower says where it was sent no message of its own
                told = f"{type(error).__name__}: {error}"[:_LONGEST_REASON]
                if len(some) == 1:
                    party, node = waiting.pop(some[0])
                    self._note(f"{party_name(party)} (node {node}) has dropped out: its reply can't be read: {told}")
                else:
                    self._one_by_one, numbers = True, some + numbers
                    self._note(f"A reply can't be read ({told}); replies are fetched one by one from now on.")
                continue
            while messages:
                yield messages.pop(0)

    def _push(self, asked: Sequence[tuple[ClientId, int, bytes]]) -> dict[str, tuple[ClientId, int]]:
        """Send, and return who is waited for by the messages' numbers."""
        records = {frame: envelope.record_of(frame) for _, _, frame in asked}
        messages = [
            envelope.request(
                records[frame],
                party=party,
                node=node,
                ttl=self._deadline,
                message_type=self._message_type,
                terms=self.terms,
            )
            for party, node, frame in asked
        ]
        sent: set[str] = set()
        for first in range(0, len(messages), _PUSHED):
            sent.update(self._insist(partial(self._pushed, messages[first : first + _PUSHED])))
        if messages and not sent:
            self._note(
                f"The SuperLink took none of {len(messages)} requests: no node of them is connected, or what is before "
                "it refuses messages of this length; Flower's log says which. Let it take bodies of 8 MB at least."
            )
        waiting: dict[str, tuple[ClientId, int]] = {}
        for message, (party, node, _) in zip(messages, asked, strict=True):
            if message.metadata.message_id in sent:
                waiting[message.metadata.message_id] = party, node
            else:
                self._note(f"{party_name(party)} (node {node}) has dropped out: it is not connected.")
        return waiting

    def _pull(self, numbers: Sequence[str]) -> list[Message]:
        return list(self._grid.pull_messages(numbers))

    def _pushed(self, messages: Sequence[Message]) -> list[str]:
        return list(self._grid.push_messages(messages))

    def _frame(self, message: Message, party: ClientId, node: int) -> bytes | WireError | None:
        if message.has_error():
            self.failures[node] = message.error
            self._note(f"{party_name(party)} (node {node}) has dropped out: {reason_of(message.error)}")
            return None
        if message.metadata.src_node_id != node:
            self._note(f"Node {message.metadata.src_node_id} answered for node {node}; the answer is not used.")
            return None
        try:
            return envelope.frame_of(message)
        except WireError as error:
            return WireError(f"{party_name(party)} (node {node}) sent something else: {error}")

    def _insist(self, call: Callable[[], _Found]) -> _Found:
        """Call the SuperLink, again where it can't be reached."""
        for attempt in range(1, _TRIES + 1):
            try:
                return call()
            except (OSError, httpx.HTTPError) as error:
                what = str(error) or type(error).__name__
                if attempt == _TRIES:
                    raise LinkError(
                        f"The SuperLink can't be reached: {what}. Tried {_TRIES} times. Check that it runs and that "
                        "nothing is between, then send the run again."
                    ) from error
                wait = 2.0 ** (attempt - 1)
                self._note(f"The SuperLink can't be reached: {what}. Trying again in {wait:g} s.")
                self._pause(wait)
        raise AssertionError("unreachable: the last try returns or raises")


def reason_of(error: Error) -> str:
    r"""Return why a node answered with an error, in one line: of a traceback the last, which says what was raised.

    >>> reason_of(Error(code=2, reason="Traceback (most recent call last):\n  ...\nKeyError: 'arrays'"))
    "KeyError: 'arrays'"
    """
    lines = [line.strip() for line in (error.reason or "").splitlines()]
    told = [line for line in lines if line.strip("^~<>' ")]
    return told[-1].removesuffix("'>")[:_LONGEST_REASON] if told else f"error {error.code}"
