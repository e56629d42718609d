"""The sum of signs: clients send which coordinates they name, in as few bits as that takes, and no numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tacit import wire
from tacit.errors import ClientError, WireError
from tacit.flow import ClientId, Flow
from tacit.protocols.clear import OneTrip
from tacit.protocols.protocol import Contribution, Guarantee, Refusals, Total
from tacit.protocols.reports import Report, ReportCode, ReportCount

EXTRA = 2  # behind the model's coordinates: the bit, and a one to count reports by


@dataclass(frozen=True, kw_only=True)
class SignSum(OneTrip):
    """One trip: the task out, one report per client back, counted coordinate by coordinate.

    A contribution has the client's sign at the coordinates it names and zero elsewhere, then a bit, then a one. Of it
    only the set of coordinates, the sign and the bit travel. A report that is damaged, stale, a failure or outside
    what the code allows is refused: its client is named, and the others count. With too few left the round fails.

    Attributes:
        named: how many coordinates a report names, for a model of so many; all sides know it.
    """

    named: Callable[[int], int]

    @property
    def guarantee(self) -> Guarantee:
        """No value leaves a client, only where it is large."""
        return Guarantee(
            server="of every client a set of coordinates, one sign for all of them and one bit; no values",
            clients="the global model of each round, and the estimate of the step",
            outsider="nothing, where the connection is encrypted",
        )

    def server(self, cohort: Sequence[ClientId], task: wire.Task, length: int) -> Flow[Total]:
        """Ask, check and count."""
        replies = yield dict.fromkeys(cohort, wire.pack_task(task))
        code = self._code(length)
        count = ReportCount(dimensions=code.dimensions, chosen=code.chosen, round_number=task.turn.round_number)
        refusals = Refusals(round_number=task.turn.round_number)
        for client in sorted(replies):
            try:
                body = wire.expect(wire.Kind.SIGNS, task.turn, client, replies[client])
                count.add(client, _decoded(code, count, client, body))
            except ClientError as error:
                refusals.add(client, error)
        total = np.concatenate([count.votes(), [float(count.ones), float(len(count.clients))]])
        return self._total(total, count.clients, asked=len(cohort), refusals=refusals)

    def _reply(self, turn: wire.Turn, vector: Contribution) -> bytes:
        indices = np.flatnonzero(vector[:-EXTRA])
        signs = np.unique(vector[indices])
        if len(signs) != 1:
            raise WireError(f"Expected one sign at all named coordinates, got {signs.tolist()}.")
        bit, one = float(vector[-2]), float(vector[-1])
        if one != 1.0 or bit not in (0.0, 1.0):
            raise WireError(f"Expected a bit and a one behind the signs, got {bit} and {one}.")
        code = ReportCode(dimensions=len(vector) - EXTRA, chosen=len(indices))
        report = Report(indices=indices, sign=_whole(signs[0]), bit=int(bit))
        return wire.pack_brief(wire.Kind.SIGNS, turn, code.encode(report))

    def _code(self, length: int) -> ReportCode:
        if length <= EXTRA:
            raise WireError(f"Expected a vector with {EXTRA} numbers behind the model's, got a length of {length}.")
        return ReportCode(dimensions=length - EXTRA, chosen=self.named(length - EXTRA))


def _decoded(code: ReportCode, count: ReportCount, client: ClientId, body: memoryview) -> Report:
    try:
        return code.decode(body)
    except WireError as error:
        raise count.refusal(client, str(error)) from error


def _whole(sign: float) -> int:
    """Return the sign as an integer, or 0 where it is a number between."""
    return int(sign) if float(sign).is_integer() else 0
