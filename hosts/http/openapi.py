"""The OpenAPI 3.1 document of the operations, made from their table and the classes that they name."""

from collections.abc import Iterator, Mapping
from types import NoneType
from typing import Any, Final

import attrs

from holdfast.hosts.http.authentication.cookies import HOST_NAME
from holdfast.hosts.http.downloads import Download
from holdfast.hosts.http.operations import Access, Hint, Nothing, Operation, Reach, Table, Text
from holdfast.hosts.http.problems import MEDIA_TYPE, REQUEST_CODES, Problem, status_of
from holdfast.hosts.http.schemas import Schema, SchemaWriter, description_of, meanings_of, summary_of
from holdfast.hosts.http.shared_reads import CHANGED
from holdfast.hosts.inspection.json_form import keys_of
from holdfast.ports.errors import (
    ForeignOriginError,
    HoldfastError,
    InvalidCommandError,
    InvalidNamespaceError,
    StorageRefusedError,
    TooManyFailuresError,
    UnavailableError,
    UnreadableRowError,
)

VERSION: Final = "1"
"""The version of the interface, as in the paths."""
FORM: Final = "application/x-www-form-urlencoded"
"""The media type of a form of a page."""
_SUBJECTS: Final = {
    "browser_session": "Browsers that are signed in.",
    "audit": "Administrative actions that are in no run's history.",
    "command": "The commands of the kernel, in their JSON form.",
    "dead_letter": "Streams of events that a sink refused.",
    "error": "The meaning of error codes.",
    "key": "API keys.",
    "limit": "Limits and queues.",
    "namespace": "Namespaces.",
    "queue": "Queues.",
    "run": "Runs of workflows.",
    "schedule": "Schedules.",
    "server": "The server itself.",
    "sink": "The sinks that receive events.",
    "task": "Tasks of remote workers.",
    "topic": "Topics, whose messages go to every run that subscribes.",
    "trigger": "Triggers, by which messages of topics start runs.",
    "wake": "External work.",
    "worker": "Remote workers.",
    "workflow": "The workflows that the server can start.",
}
_PATHS: Final = {
    "channel": "The name of a channel.",
    "number": "The number of a history row.",
    "code": "An error code.",
    "completion": "The token of a completion.",
    "key": "The key that a stage passed to `suspend`.",
    "label": "The label or the id of the key.",
    "name": "The name.",
    "namespace": "The namespace.",
    "token": "The token of a task.",
    "topic": "The name of a topic.",
    "worker": "The id of a worker.",
    "run_id": "The run id. A slash in it is written `%2F`.",
}
_ABOUT: Final = (
    "Durable workflows over HTTP. Instants are text of RFC 3339, durations are seconds. Unknown query parameters and "
    "fields of a body are refused. Clients must accept fields and values of texts that they do not know."
)


def openapi_document(table: Table) -> dict[str, Any]:
    """Return the document of a server at the root."""
    writer = SchemaWriter()
    paths: dict[str, dict[str, Schema]] = {}
    for one in table:
        paths.setdefault(one.path, {})[one.method.lower()] = _operation(one, writer)
    writer.reference(Problem)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Holdfast", "version": VERSION, "description": _ABOUT},
        "servers": [{"url": "/"}],
        "tags": [{"name": name, "description": text} for name, text in sorted(_SUBJECTS.items())],
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": dict(sorted(writer.schemas.items())),
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "description": "A credential of the server."},
                "session": {
                    "type": "apiKey",
                    "in": "cookie",
                    "name": HOST_NAME,
                    "description": "The cookie of a browser session, for pages of the server itself. Requests that are "
                    "not a GET also need its token as `X-CSRF-Token`. The cookie has another name below a path, and "
                    "without TLS.",
                },
            },
        },
    }


def _operation(operation: Operation, writer: SchemaWriter) -> Schema:
    found: Schema = {
        "operationId": operation.name,
        "tags": [operation.name.partition(".")[0]],
        "summary": summary_of(operation.handler).removesuffix("."),
        "description": "\n\n".join(_description(operation)),
        "x-holdfast-scope": operation.scope.value,
        "x-holdfast-reach": operation.reach.value,
        "x-holdfast-hint": operation.hint.value,
        "security": []
        if operation.scope in {Access.ANYONE, Access.CREDENTIAL}
        else [{"bearer": []}, {"session": []}],
    }
    if parameters := list(_parameters(operation, writer)):
        found["parameters"] = parameters
    if operation.body is not Nothing:
        schema = writer.reference(operation.body, is_input=True)
        needed = any(one.default is attrs.NOTHING for one in attrs.fields(operation.body))
        kinds = ("application/json",) if operation.form is None else ("application/json", FORM)
        found["requestBody"] = {"required": needed, "content": {kind: {"schema": schema} for kind in kinds}}
    found["responses"] = _responses(operation, writer)
    return found


def _description(operation: Operation) -> Iterator[str]:
    if text := description_of(operation.handler):
        yield text
    match operation.scope:
        case Access.ANYONE:
            yield "Needs no credentials."
        case Access.CREDENTIAL:
            yield "Needs a credential in the body."
        case Access.PRINCIPAL:
            yield "Needs credentials; what they allow depends on the request."
        case scope:
            where = "" if operation.reach is Reach.NAMED else f" on {operation.reach.value}"
            yield f"Needs the scope `{scope.value}`{where}."
    if operation.wait is not None:
        condition = operation.wait.value
        yield f"With `Prefer: wait=N` the answer waits for at most N seconds, 55 at most, until {condition}."
    if operation.is_watched:
        yield (
            "With `Accept: text/event-stream` the answer is a stream of the document: an event `changed` with all "
            "of it, at once unless `Last-Event-ID` names this version, and then whenever it has changed."
        )
    elif operation.can_stream:
        yield "With `Accept: text/event-stream` the answer is a stream of events."


def _parameters(operation: Operation, writer: SchemaWriter) -> Iterator[Schema]:
    for name in (one[1:-1] for one in operation.path.split("/") if one.startswith("{")):
        yield {
            "name": name,
            "in": "path",
            "required": True,
            "description": _PATHS[name],
            "schema": {"type": "string", "minLength": 1},
        }
    yield from _query_parameters(operation.query, writer)
    if operation.idempotent:
        yield _header(
            "Idempotency-Key",
            "A repeated request with this key is carried out once, and gets the same answer.",
            {"type": "string", "minLength": 1, "maxLength": 255},
        )
    if operation.if_match:
        text = 'The generation that is meant, as in `"g1"`: nothing is done if the run has another one.'
        yield _header("If-Match", text, {"type": "string", "pattern": '^"?g[0-9]{1,9}"?$'})
    if operation.method == "GET" and operation.reply not in {NoneType, Text}:
        text = "The `ETag` of an earlier answer: 304 if it has not changed."
        yield _header("If-None-Match", text, {"type": "string"})
    if operation.wait is not None:
        yield _header(
            "Prefer", f"`wait=N`: wait for N seconds until {operation.wait.value}.", {"type": "string"}
        )
    if operation.can_stream:
        text = "For a stream: the id of the last event that was received. Other answers do not depend on it."
        yield _header("Last-Event-ID", text, {"type": "string"})


def _header(name: str, text: str, schema: Schema) -> Schema:
    return {"name": name, "in": "header", "required": False, "description": text, "schema": schema}


def _query_parameters(cls: Any, writer: SchemaWriter) -> Iterator[Schema]:
    meanings, keys = meanings_of(cls), keys_of(cls)
    schemas = writer.properties(cls, is_input=True)
    for field in attrs.fields(cls):
        key = keys[field.name]
        schema = {name: value for name, value in schemas[key].items() if name != "description"}
        if isinstance(schema.get("type"), list):  # a query has no null: the parameter is left out
            (schema["type"],) = (one for one in schema["type"] if one != "null")
        if "enum" in schema:
            schema["enum"] = [one for one in schema["enum"] if one is not None]
        found: Schema = {
            "name": key,
            "in": "query",
            "required": field.default is attrs.NOTHING,
            "description": meanings[field.name],
            "schema": schema,
        }
        if schema.get("type") == "object":
            found |= {"style": "deepObject", "explode": True}
        yield found


def _responses(operation: Operation, writer: SchemaWriter) -> Schema:
    found: Schema = {}
    if operation.reply is NoneType:
        found["204"] = {"description": "Done."}
    else:
        content: Schema = {
            name: {"schema": _reply(operation, writer, name)} for name in operation.media_types
        }
        if operation.is_watched:
            text = f"The data of an event `{CHANGED}` is what the answer with JSON is."
            content["text/event-stream"] = {"schema": {"type": "string", "description": text}}
        elif operation.is_due is not None:
            text = (
                "The data of an event is what an item of the answer with JSON is, and its id is the cursor."
            )
            content["text/event-stream"] = {"schema": {"type": "string", "description": text}}
        elif operation.can_stream:
            for cls in operation.events.values():
                writer.reference(cls)
            content["text/event-stream"] = {
                "schema": {"type": "string", "description": _events(operation.events)}
            }
        headers: Schema = {}
        if operation.method == "GET" and operation.reply is not Text:
            headers["ETag"] = _text_header("Changes with the document.")
            found["304"] = {"description": "The document has not changed.", "headers": dict(headers)}
        if operation.can_wait:
            headers["Preference-Applied"] = _text_header("The wait that was applied.")
        found["200"] = {"description": summary_of(operation.reply), "headers": headers, "content": content}
        if operation.location is not None:
            created = {**headers, "Location": _text_header("Where it is.")}
            found["201"] = {"description": "Created.", "headers": created, "content": content}
        if operation.form is not None:
            headers = {"Location": _text_header("Where the browser goes after a form.")}
            found["303"] = {"description": "Done, for a form.", "headers": headers}
        if operation.stream is not None:
            found["204"] = {"description": "The stream has ended, and no events follow."}
    for status, codes in sorted(_codes(operation).items()):
        found[str(status)] = {
            "description": f"Codes: {', '.join(f'`{code}`' for code in sorted(codes))}.",
            "content": {MEDIA_TYPE: {"schema": writer.reference(Problem)}},
        }
    return dict(sorted(found.items()))


def _events(events: Mapping[str, type]) -> str:
    """Return a sentence about the data of events."""
    (first, cls), *others = events.items()
    named = f" `{first}`" if first else ""
    return (
        "; ".join(
            (
                f"The data of an event{named} is a {cls.__name__}",
                *(f"of `{one}` a {of.__name__}" for one, of in others),
            )
        )
        + "."
    )


def _reply(operation: Operation, writer: SchemaWriter, media_type: str) -> Schema:
    if operation.reply is Text:
        return {} if media_type == "application/json" else {"type": "string"}
    if operation.reply is Download:
        return {}
    return {"type": "object"} if operation.reply is dict else writer.reference(operation.reply)


def _text_header(text: str) -> Schema:
    return {"description": text, "schema": {"type": "string"}}


def _codes(operation: Operation) -> dict[int, set[str]]:
    """Return the codes of the problems that an operation can have, by status."""
    names = {"invalid_request", "not_found", "method_not_allowed", "internal"}
    if operation.scope is not Access.ANYONE:
        names |= {"unauthenticated", "too_many_requests"}
    if operation.scope not in {Access.ANYONE, Access.CREDENTIAL}:
        names |= {"forbidden"} | (
            {"csrf_failed"} if operation.method != "GET" or operation.hint is not Hint.READS else set()
        )
    if "{namespace}" in operation.path:
        names.add("namespace_not_found")
    if operation.method != "GET":
        names |= {"too_large", "too_slow", "unsupported_media_type"}
    if (operation.hint is not Hint.READS or operation.method != "GET") and not operation.in_read_only:
        names.add("read_only")
    if operation.if_match:
        names.add("generation_changed")
    if operation.can_stream:
        names |= {"too_many_streams", "shutting_down"}
    if not operation.can_stream:
        names.add("not_acceptable")
    if operation.reply is Download:
        names |= {"value_too_large", "too_many_streams"}
    found: dict[int, set[str]] = {}
    for name in names:
        found.setdefault(REQUEST_CODES[name][0], set()).add(name)
    errors: set[type[HoldfastError]] = {UnavailableError, *operation.errors}
    if operation.scope is not Access.ANYONE:
        errors |= {TooManyFailuresError, ForeignOriginError}
    if "{namespace}" in operation.path:
        errors |= {InvalidCommandError, InvalidNamespaceError, UnreadableRowError}
    if operation.hint is not Hint.READS:
        errors |= {StorageRefusedError}
    for error in errors:
        found.setdefault(status_of(error), set()).add(error.code)
    return found
