"""What the Open Responses specification requires of responses and streamed events, as a JSON Schema.

Written from the facts of its OpenAPI document (`public/openapi/openapi.json` of openresponses/openresponses, version
2026-04-24), reduced to what a response with messages, thoughts and calls has.
"""

from __future__ import annotations

from typing import Any

from jsonschema import Draft202012Validator

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
WHOLE: Schema = {"type": "integer"}
NUMBER: Schema = {"type": "number"}
FLAG: Schema = {"type": "boolean"}
NULL: Schema = {"type": "null"}


def nullable(schema: Schema) -> Schema:
    return {"anyOf": [schema, NULL]}


def one_of(*values: str) -> Schema:
    return {"type": "string", "enum": list(values)}


def data(**required: Schema) -> Schema:
    return {
        "type": "object",
        "properties": required,
        "required": list(required),
    }


def array(items: Schema) -> Schema:
    return {"type": "array", "items": items}


PART = data(
    type=one_of("output_text"), text=TEXT, annotations=array({"not": {}})
)
REFUSAL_PART = data(type=one_of("refusal"), refusal=TEXT)
SUMMARY_PART = data(type=one_of("summary_text"), text=TEXT)
MESSAGE = data(
    type=one_of("message"),
    id=TEXT,
    status=one_of("in_progress", "completed", "incomplete"),
    role=one_of("user", "assistant", "system", "developer"),
    content=array({"oneOf": [PART, REFUSAL_PART]}),
)
REASONING = data(type=one_of("reasoning"), id=TEXT, summary=array(SUMMARY_PART))
FUNCTION_CALL = data(
    type=one_of("function_call"),
    id=TEXT,
    call_id=TEXT,
    name=TEXT,
    arguments=TEXT,
    status=one_of("in_progress", "completed", "incomplete"),
)
ITEM: Schema = {"oneOf": [MESSAGE, REASONING, FUNCTION_CALL]}
TOOL = data(
    type=one_of("function"),
    name=TEXT,
    description=nullable(TEXT),
    parameters=nullable({"type": "object"}),
    strict=nullable(FLAG),
)
TOOL_CHOICE: Schema = {
    "anyOf": [
        one_of("none", "auto", "required"),
        data(type=one_of("function"), name=TEXT),
    ]
}
FORMAT: Schema = {
    "oneOf": [
        data(type=one_of("text")),
        data(type=one_of("json_object")),
        data(
            type=one_of("json_schema"),
            name=TEXT,
            description=nullable(TEXT),
            schema=NULL,
            strict=FLAG,
        ),
    ]
}
EFFORT = one_of("none", "minimal", "low", "medium", "high", "xhigh")
USAGE = data(
    input_tokens=WHOLE,
    output_tokens=WHOLE,
    total_tokens=WHOLE,
    input_tokens_details=data(cached_tokens=WHOLE),
    output_tokens_details=data(reasoning_tokens=WHOLE),
)
RESPONSE = data(
    id=TEXT,
    object=one_of("response"),
    created_at=WHOLE,
    completed_at=nullable(WHOLE),
    status=TEXT,
    incomplete_details=nullable(data(reason=TEXT)),
    model=TEXT,
    previous_response_id=nullable(TEXT),
    instructions=nullable(TEXT),
    output=array(ITEM),
    error=nullable(data(code=TEXT, message=TEXT)),
    tools=array(TOOL),
    tool_choice=TOOL_CHOICE,
    truncation=one_of("auto", "disabled"),
    parallel_tool_calls=FLAG,
    text=data(format=FORMAT),
    top_p=NUMBER,
    presence_penalty=NUMBER,
    frequency_penalty=NUMBER,
    top_logprobs=WHOLE,
    temperature=NUMBER,
    reasoning=nullable(data(effort=nullable(EFFORT), summary=nullable(TEXT))),
    usage=nullable(USAGE),
    max_output_tokens=nullable(WHOLE),
    max_tool_calls=nullable(WHOLE),
    store=FLAG,
    background=FLAG,
    service_tier=TEXT,
    metadata={"type": "object"},
    safety_identifier=nullable(TEXT),
    prompt_cache_key=nullable(TEXT),
)
SUMMARY_PLACE = {"item_id": TEXT, "output_index": WHOLE, "summary_index": WHOLE}
PLACE = {"item_id": TEXT, "output_index": WHOLE, "content_index": WHOLE}
CALL_PLACE = {"item_id": TEXT, "output_index": WHOLE}
EVENTS = {
    **{
        f"response.{state}": {"response": RESPONSE}
        for state in ("created", "in_progress")
    },
    **{
        f"response.{state}": {"response": RESPONSE}
        for state in ("completed", "incomplete", "failed")
    },
    "response.output_item.added": {"output_index": WHOLE, "item": ITEM},
    "response.output_item.done": {"output_index": WHOLE, "item": ITEM},
    **{
        f"response.content_part.{state}": {
            **PLACE,
            "part": {"oneOf": [PART, REFUSAL_PART]},
        }
        for state in ("added", "done")
    },
    "response.refusal.delta": {**PLACE, "delta": TEXT},
    "response.refusal.done": {**PLACE, "refusal": TEXT},
    "response.output_text.delta": {**PLACE, "delta": TEXT},
    "response.output_text.done": {**PLACE, "text": TEXT},
    "response.function_call_arguments.delta": {**CALL_PLACE, "delta": TEXT},
    "response.function_call_arguments.done": {**CALL_PLACE, "arguments": TEXT},
    "response.reasoning_summary_part.added": {
        **SUMMARY_PLACE,
        "part": SUMMARY_PART,
    },
    "response.reasoning_summary_part.done": {
        **SUMMARY_PLACE,
        "part": SUMMARY_PART,
    },
    "response.reasoning_summary_text.delta": {**SUMMARY_PLACE, "delta": TEXT},
    "response.reasoning_summary_text.done": {**SUMMARY_PLACE, "text": TEXT},
}
"""The fields of each event, besides its type and its number."""


def check_response(response: Any) -> None:
    """Check that a response is as the specification says."""
    Draft202012Validator(RESPONSE).validate(response)


def check_events(events: list[Any]) -> None:
    """Check that streamed events are as the specification says, in order, and numbered without a gap."""
    for number, event in enumerate(events):
        schema = data(
            type=one_of(event["type"]),
            sequence_number=WHOLE,
            **EVENTS[event["type"]],
        )
        Draft202012Validator(schema).validate(event)
        assert event["sequence_number"] == number
    assert [event["type"] for event in events[:2]] == [
        "response.created",
        "response.in_progress",
    ]
    assert events[-1]["type"] in (
        "response.completed",
        "response.incomplete",
        "response.failed",
    )
    _check_items(events)


def _check_items(events: list[Any]) -> None:
    """Check that one item follows the other, and that the response has those that were sent."""
    done: list[Any] = []
    open_item: Any = None
    for event in events:
        if event["type"] == "response.output_item.added":
            assert open_item is None
            open_item = event["item"]
        if "output_index" in event:
            assert event["output_index"] == len(done)
        if "item_id" in event:
            assert event["item_id"] == open_item["id"]
        if event["type"] == "response.output_item.done":
            done.append(event["item"])
            assert done[-1]["id"] == open_item["id"]
            open_item = None
    if events[-1]["type"] != "response.failed":
        output = events[-1]["response"]["output"]
        assert [item["id"] for item in output] == [item["id"] for item in done]
        assert len({item["id"] for item in done}) == len(done) > 0
