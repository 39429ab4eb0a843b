"""What goes wrong, as RFC 9457 problems: a type from a short list, and a sentence that helps."""

from enum import StrEnum
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from shoal.server.models import Problem, ProblemPart

MEDIA_TYPE = "application/problem+json"
MOST_PARTS = 50


class Kind(StrEnum):
    """What kinds of problems there are; `urn:shoal:problem:KIND` is the type that is sent."""

    BAD_REQUEST = "bad-request"
    REFUSED = "refused"
    NOT_FOUND = "not-found"
    CONFLICT = "conflict"
    TOO_LARGE = "too-large"
    BUSY = "busy"
    STOPPING = "stopping"
    METHOD = "method-not-allowed"
    DEFECT = "defect"


_STATUS = {
    Kind.BAD_REQUEST: 400,
    Kind.REFUSED: 422,
    Kind.NOT_FOUND: 404,
    Kind.CONFLICT: 409,
    Kind.TOO_LARGE: 413,
    Kind.BUSY: 503,
    Kind.STOPPING: 503,
    Kind.METHOD: 405,
    Kind.DEFECT: 500,
}

_TITLES = {
    Kind.BAD_REQUEST: "The request does not have the form of the API",
    Kind.REFUSED: "What was sent cannot be taken in",
    Kind.NOT_FOUND: "There is no such thing",
    Kind.CONFLICT: "It is there already",
    Kind.TOO_LARGE: "The request is too large",
    Kind.BUSY: "Too many ask at once",
    Kind.STOPPING: "The platform is stopping",
    Kind.METHOD: "This cannot be done here",
    Kind.DEFECT: "A defect of Shoal",
}


class ProblemError(Exception):
    """Ends a request with a problem."""

    def __init__(self, kind: Kind, detail: str, parts: tuple[ProblemPart, ...] = ()) -> None:
        super().__init__(detail)
        self.problem = problem(kind, detail, parts)


def problem(kind: Kind, detail: str, parts: tuple[ProblemPart, ...] = ()) -> Problem:
    """A problem of a kind."""
    shown = list(parts[:MOST_PARTS])
    if len(parts) > MOST_PARTS:
        shown.append(ProblemPart(message=f"and {len(parts) - MOST_PARTS:,} more"))
    return Problem(
        type=f"urn:shoal:problem:{kind.value}",
        title=_TITLES[kind],
        status=_STATUS[kind],
        detail=detail,
        errors=shown,
    )


def response(found: Problem) -> JSONResponse:
    """A problem as an answer."""
    return JSONResponse(
        found.model_dump(mode="json", exclude_none=True),
        status_code=found.status,
        media_type=MEDIA_TYPE,
    )


RESPONSES: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": Problem, "description": "What is wrong with the request"},
    "5XX": {"model": Problem, "description": "The platform cannot answer now"},
}
"""What every route may answer beside its own, for the description of the API."""


def install(app: FastAPI) -> None:
    """Have every error of an application answered as a problem."""

    def told(_: Request, error: ProblemError) -> JSONResponse:
        return response(error.problem)

    def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        parts = tuple(_part(each) for each in error.errors())
        first = parts[0] if parts else ProblemPart(message="it cannot be read")
        detail = f"{first.field}: {first.message}" if first.field else first.message
        return response(problem(Kind.BAD_REQUEST, detail, parts))

    def http(request: Request, error: HTTPException) -> JSONResponse:
        if error.status_code == _STATUS[Kind.METHOD]:
            said = f"{request.method} cannot be done on {request.url.path}"
            answer = response(problem(Kind.METHOD, said))
            answer.headers.update(error.headers or {})
            return answer
        kind = Kind.NOT_FOUND if error.status_code == _STATUS[Kind.NOT_FOUND] else Kind.BAD_REQUEST
        said = f"there is nothing at {request.url.path}" if kind is Kind.NOT_FOUND else error.detail
        return response(problem(kind, said))

    def defect(_: Request, __: Exception) -> JSONResponse:
        return response(problem(Kind.DEFECT, "the request could not be answered; see the log"))

    app.add_exception_handler(ProblemError, told)  # type: ignore[arg-type]
    app.add_exception_handler(RequestValidationError, invalid)  # type: ignore[arg-type]
    app.add_exception_handler(HTTPException, http)  # type: ignore[arg-type]
    app.add_exception_handler(Exception, defect)


def _part(error: Any) -> ProblemPart:
    """One thing that pydantic found, said with what is allowed."""
    place = [str(step) for step in error["loc"] if step not in ("body", "query", "path", "header")]
    message = str(error["msg"])
    if error["type"] == "extra_forbidden":
        message = "is not known here; leave it out"
    elif error["type"] == "value_error":
        message = str(error["ctx"]["error"])
    elif error["type"] == "missing":
        message = "is missing"
    elif not place:
        message = "the body must be a JSON object, sent as application/json"
    elif error["type"] == "json_invalid":
        message = f"the body is not JSON: {error.get('ctx', {}).get('error', 'it cannot be read')}"
        place = []
    return ProblemPart(field=".".join(place)[:200], message=f"{message[0].lower()}{message[1:]}")
