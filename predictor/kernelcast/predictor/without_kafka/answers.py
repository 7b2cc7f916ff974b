"""Shows findings as JSON, and takes people's answers to them, where no Kafka carries either.

`GET /api/v1/findings` and `POST /api/v1/findings/mark?id=…&verdict=…`; the web server calls them on its loop.
"""

import time
from dataclasses import asdict
from typing import Any, Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from kernelcast.predictor.alarms.finding_log import FindingLog
from kernelcast.wire.cloudevents import encode_event
from kernelcast.wire.errors import EventError
from kernelcast.wire.events import to_event
from kernelcast.wire.findings import FindingState, Mark, Verdict

PATH: Final = "/api/v1/findings"


class Answers:
    """The pages of the findings of one predictor."""

    def __init__(self, findings: FindingLog) -> None:
        self._findings = findings

    @property
    def routes(self) -> list[Route]:
        """For the web server."""
        return [Route(PATH, self._list), Route(f"{PATH}/mark", self._mark, methods=["POST"])]

    async def _list(self, _request: Request) -> Response:
        """Findings that last, with the answers to them."""
        findings, marks = await run_in_threadpool(self._findings.known)
        lasting = [one for one in findings.values() if one.state is not FindingState.OVER]
        shown: list[dict[str, Any]] = []
        for one in sorted(lasting, key=lambda each: -each.began_ns):
            mark = marks.get(one.finding_id)
            shown.append({**asdict(one), "labels": dict(one.labels), "mark": None if mark is None else asdict(mark)})
        return JSONResponse({"findings": shown})

    async def _mark(self, request: Request) -> Response:
        """Take an answer: id, verdict, and by and note for people."""
        given = request.query_params
        finding_id = given.get("id", "")
        findings, _ = await run_in_threadpool(self._findings.known)
        if finding_id not in findings:
            return _refused(f"no finding has the id {finding_id!r}; {PATH} lists them", 404)
        verdicts = [str(verdict) for verdict in Verdict]
        if given.get("verdict") not in verdicts:
            return _refused(f"verdict is {given.get('verdict')!r}; give one of {', '.join(verdicts)}", 400)
        mark = Mark(finding_id, Verdict(given["verdict"]), given.get("by", ""), given.get("note", ""), time.time_ns())
        try:
            event = encode_event(to_event(mark, source="/kernelcast/predictor", time_ns=mark.time_ns))
        except EventError as error:
            return _refused(f"by and note are too long: {error}", 400)
        await run_in_threadpool(self._findings.add, event)
        return JSONResponse({"id": finding_id, "verdict": mark.verdict})


def _refused(reason: str, status: int) -> JSONResponse:
    return JSONResponse({"error": reason}, status_code=status)
