"""The check of an inline blueprint before anything is built from it: one walk over its JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Set
from graphlib import CycleError, TopologicalSorter
from itertools import islice
from typing import Any, NamedTuple, cast

from podwright.blueprints.members import handoffs_of
from podwright.blueprints.named_parts import (
    handoff_names,
    hook_names,
    member_names,
)
from podwright.components.handoffs import DEFAULT_MAX_HANDOFFS
from podwright.data.json_data import (
    as_array,
    as_object,
    json_pointer,
    to_json_bytes,
    values_in,
)
from podwright.data.text import did_you_mean, short_repr
from podwright.errors import Problem
from podwright.run.component import DEFAULT_MAX_LOOPS
from podwright.schemas.json_schema import measure
from podwright.schemas.validation_errors import MAX_PROBLEMS
from podwright.steps.registry import collect, sequence_places, step_keys
from podwright.tools.entries import object_parameters
from podwright.tools.tool import Tool
from podwright_service.inline.allowed_mcp import NO_MCP, AllowedMCP
from podwright_service.settings import Settings, variables_of

MAX_VALUES = 10_000
"""Most JSON values of a blueprint and its agents."""
MAX_PLACEHOLDERS = 64
"""Most placeholders, such as `{input}`, in one text, so that a filled template stays of the order of its values."""

_MAX_SCHEMA_WORK = 100_000
"""Most subschemas that the checks of all JSON Schemas and their defaults may visit: half a second."""

_PLACEHOLDER = re.compile(r"\{[\w.-]+\}")
_OPAQUE_KEYS = (
    "args",
    "arguments",
    "edit",
    "input",
    "inputs",
    "metadata",
    "response_schema",
    "schema",
)
"""Keys under which any JSON may stand: arguments and inputs of what a step calls, JSON Schemas, notes."""

_NESTING_KEYS = frozenset({"steps", "skills", "handoffs"})
"""The keys of blueprints whose runs have others inside."""

Blueprints = Mapping[str, Mapping[str, Any]]
"""Blueprints of agents by name."""


class _Part(NamedTuple):
    """A blueprint in the body of a request."""

    pointer: str
    blueprint: Mapping[str, Any]


class Inspection:
    """Collects everything that a blueprint names and may not, and everything that is too large, with pointers.

    Args:
        models: The models that it may name.
        tools: The tools that it may name.
        settings: The size limits.
        mcp: The MCP tools that it may name; by default none.
    """

    def __init__(
        self,
        models: Collection[str],
        tools: Mapping[str, Tool],
        settings: Settings,
        mcp: AllowedMCP = NO_MCP,
    ) -> None:
        self._models = models
        self._tools = tools
        self._mcp = mcp
        self._settings = settings
        self._step_keys = step_keys()
        self._function_keys = collect(lambda kind: kind.function_keys)
        self._schemas = {
            *("/inputs/*", "/response_schema"),
            *collect(lambda kind: kind.schemas),
        }
        self._caps = {
            **dict.fromkeys(
                collect(lambda kind: kind.repeat_keys), "max_loops"
            ),
            **dict.fromkeys(
                collect(lambda kind: kind.concurrency_keys), "max_branches"
            ),
        }
        """The settings that bound numbers of steps."""
        self._sizes = {
            **{
                place[1:-2]: "max_branches"
                for place in sequence_places()
                if place.endswith("/*")
            },
            "skills": "max_steps",
            "tools": "max_steps",
            "mcp": "max_steps",
            "handoffs": "max_steps",
        }
        """The settings that bound the lengths of lists."""
        self.problems: list[Problem] = []
        self.unsafe_to_build = False
        """Whether it cannot be built in a short time: it is too large, has a foreign schema of a tool, or contains
        itself."""
        self._values = 0
        """JSON values so far."""
        self._steps = 0
        """Steps of the blueprint that is visited."""
        self._schema_work = 0
        """Subschemas that the checks of the JSON Schemas so far visit."""

    def inspect(
        self, blueprint: Mapping[str, Any], agents: Blueprints, served: Set[str]
    ) -> list[str]:
        """Check a blueprint and the agents that come with it.

        Args:
            blueprint: The blueprint.
            agents: Blueprints of agents by name.
            served: Names of the service's own agents; those of `agents` come before them.

        Returns:
            The names of `agents`, each after those that it names.
        """
        if not self._check_size("/agents", len(agents), "max_steps", "agents"):
            return []
        parts: dict[str | None, _Part] = {}
        for agent_name, agent in agents.items():
            parts[agent_name] = _Part(json_pointer("agents", agent_name), agent)
        own_name = _name_for_agents(blueprint, agents, served)
        parts[own_name] = _Part("/blueprint", blueprint)
        steps = 0
        for part in parts.values():
            steps += self._inspect_part(part)
        if self.unsafe_to_build:
            return []
        # what follows walks the blueprints again, which is quick only within the limits
        order = self._order(parts, served)
        self._check_size(
            "/agents", steps, "max_steps", "steps in all blueprints"
        )
        size = len(to_json_bytes([blueprint, agents]))
        self._check_size(
            "/blueprint", size, "max_blueprint_bytes", "bytes of JSON"
        )
        return [each for each in order if each is not None and each in agents]

    def _inspect_part(self, part: _Part) -> int:
        """Check all values of one blueprint; returns the number of its steps."""
        self._steps = 0
        self._visit(part.blueprint, part.pointer, key="", depth=1, nesting=0)
        self._check_size(
            f"{part.pointer}/steps",
            self._steps,
            "max_steps",
            "steps",
        )
        return self._steps

    def _order(
        self, parts: Mapping[str | None, _Part], served: Set[str]
    ) -> list[str | None]:
        """The names of blueprints, each after those that it names; checks how deep they use each other."""
        graph: dict[str | None, set[str]] = {}
        for name, part in parts.items():
            named = _used_by(part.blueprint, parts)
            # an agent that names itself means the service's own agent, if there is one
            if name is not None and name in served:
                named.discard(name)
            graph[name] = named
        depths: dict[str | None, int] = {}
        try:
            for name in TopologicalSorter(graph).static_order():
                part = parts[name]
                inner = [depths[other] for other in graph[name]]
                depth = max(inner, default=0)
                if not _NESTING_KEYS.isdisjoint(part.blueprint):
                    depth += 1
                depths[name] = depth
                self._check_size(
                    part.pointer,
                    depth,
                    "max_nesting",
                    unit="levels of agents that use each other",
                )
        except CycleError as error:
            circle: list[str] = error.args[1][::-1]
            detail = f"A blueprint cannot contain itself: {' → '.join(circle)}."
            self._add(parts[circle[0]].pointer, detail)
            self.unsafe_to_build = True
        return list(depths)

    def _visit(
        self,
        value: object,
        pointer: str,
        *,
        key: str | None,
        depth: int,
        nesting: int,
    ) -> None:
        """Check a value and everything in it.

        Args:
            value: JSON data.
            pointer: Its JSON pointer.
            key: The key that it stands under, also through arrays; None where any JSON may stand.
            depth: Its depth in the JSON.
            nesting: How many steps it is inside.
        """
        if self._values > MAX_VALUES:
            return  # the problem is noted already
        self._values += 1
        self._check_size("", self._values, MAX_VALUES, "JSON values")
        if isinstance(value, str):
            number = len(_PLACEHOLDER.findall(value))
            self._check_size(
                pointer, number, MAX_PLACEHOLDERS, "placeholders in one text"
            )
            return
        if not isinstance(value, list | dict):
            return
        if not self._check_size(
            pointer, depth, "max_json_depth", "levels of JSON"
        ):
            return
        if isinstance(value, dict):
            fields = cast("dict[str, Any]", value)
            self._visit_object(
                fields, pointer, key=key, depth=depth, nesting=nesting
            )
            return
        for index, item in enumerate(cast("list[object]", value)):
            self._visit(
                item,
                f"{pointer}/{index}",
                key=key,
                depth=depth + 1,
                nesting=nesting,
            )

    def _visit_object(
        self,
        value: dict[str, Any],
        pointer: str,
        *,
        key: str | None,
        depth: int,
        nesting: int,
    ) -> None:
        if key in self._step_keys:
            self._steps += 1
            nesting += 1
            if nesting == self._settings.max_nesting + 1:
                most = self._settings.max_nesting
                self._add(
                    pointer,
                    f"Steps are nested deeper than {most} levels.",
                    _way_out("max_nesting"),
                )
        if key is not None:
            self._check_names(value, pointer, key)
            self._check_schemas(value, pointer)
            self._check_bounds(value, pointer, key)
        has_opaque_values = key in (None, "config")
        for name, item in value.items():
            inner_key: str | None = name
            if has_opaque_values or name in _OPAQUE_KEYS:
                inner_key = None
            self._visit(
                item,
                pointer + json_pointer(name),
                key=inner_key,
                depth=depth + 1,
                nesting=nesting,
            )

    def _check_names(
        self, value: dict[str, Any], pointer: str, key: str
    ) -> None:
        """Check the model, the tools and the function of an object."""
        if key == "config":
            self._check_model(value.get("model"), f"{pointer}/model")
            for index, model in enumerate(as_array(value.get("fallback"))):
                self._check_model(model, f"{pointer}/fallback/{index}")
        if key == "mcp":
            self._check_mcp(value, pointer)
            return
        for index, entry in enumerate(as_array(value.get("tools"))):
            self._check_tool(as_object(entry), f"{pointer}/tools/{index}")
        if key in self._step_keys:
            for name in self._function_keys:
                self._check_function(value.get(name), f"{pointer}/{name}")
        for place, name in hook_names(value):
            self._check_function(name, pointer + place)

    def _check_model(self, model: object, pointer: str) -> None:
        if isinstance(model, str) and model not in self._models:
            hint = did_you_mean(model, self._models)
            self._add(
                pointer, f"Model {short_repr(model)} is not allowed here.", hint
            )

    def _check_tool(self, entry: dict[str, Any], pointer: str) -> None:
        name = entry.get("name")
        if not isinstance(name, str):
            return
        tool = self._tools.get(name)
        if tool is None:
            self._add_not_allowed(f"Tool {short_repr(name)}", name, pointer)
            return
        self._check_tool_options(entry, tool, pointer)
        schema = as_object(entry.get("schema"))
        function = as_object(schema.get("function"))
        if not isinstance(function.get("parameters"), dict):
            return
        if not _has_parameters_of(function, tool):
            self._add(
                f"{pointer}/schema/function",
                f"The parameters differ from those of the served tool '{name}'.",
                "Only descriptions may differ.",
            )
            self.unsafe_to_build = True

    def _check_function(self, name: object, pointer: str) -> None:
        if isinstance(name, str) and name not in self._tools:
            self._add_not_allowed(f"Function {short_repr(name)}", name, pointer)

    def _add_not_allowed(self, subject: str, name: str, pointer: str) -> None:
        """Note a tool or a function that is not on the list."""
        hint = did_you_mean(name, self._tools) or "No tools are allowed here."
        self._add(pointer, f"{subject} is not allowed here.", hint)

    def _check_mcp(self, entry: dict[str, Any], pointer: str) -> None:
        """Check the MCP tools of a model, or the one that a step calls as a function."""
        server = entry.get("server")
        if not isinstance(server, str):
            return
        if server not in self._mcp.servers:
            self._add(
                f"{pointer}/server",
                f"MCP server {short_repr(server)} is not allowed here.",
                did_you_mean(server, self._mcp.servers)
                or "No MCP servers are allowed here.",
            )
            return
        if "tool" in entry:
            self._check_mcp_function(entry, server, pointer)
        for index, item in enumerate(as_array(entry.get("tools"))):
            options = as_object(item)
            self._check_mcp_tool(
                server,
                options.get("name", item),
                options,
                f"{pointer}/tools/{index}",
            )

    def _check_mcp_function(
        self, entry: dict[str, Any], server: str, pointer: str
    ) -> None:
        name = entry["tool"]
        if not self._check_mcp_tool(server, name, entry, pointer):
            return
        if any(tool.may_need_approval for tool in self._mcp.of(server, name)):
            self._add(
                pointer,
                f"A person has to approve the calls of {short_repr(name)}, for which a function step does not ask.",
                "Let an agent call it as a tool.",
            )

    def _check_mcp_tool(
        self, server: str, name: object, options: dict[str, Any], pointer: str
    ) -> bool:
        """Check that a tool of an allowed server is allowed, and called no less strictly than the served one."""
        if not isinstance(name, str):
            return False
        if not self._mcp.allows(server, name):
            self._add(
                pointer,
                f"Tool {short_repr(name)} of MCP server '{server}' is not allowed here.",
                did_you_mean(name, self._mcp.tools_of(server)),
            )
            return False
        for tool in self._mcp.of(server, name):
            self._check_tool_options(options, tool, pointer)
        return True

    def _check_schemas(self, value: dict[str, Any], pointer: str) -> None:
        """Check the JSON Schemas of the inputs, of what people may change, and of the answer of an object."""
        for place in sorted(self._schemas):
            key, _, item = place[1:].partition("/")
            if item == "*":
                for name, schema in as_object(value.get(key)).items():
                    self._check_schema(
                        schema, f"{pointer}/{key}{json_pointer(name)}"
                    )
            else:
                self._check_schema(value.get(key), f"{pointer}/{key}")

    def _check_schema(self, value: object, pointer: str) -> None:
        """Check that a JSON Schema has no regular expression, which could be endless, and is quickly checked."""
        schema = as_object(value)
        if not schema or self._schema_work > _MAX_SCHEMA_WORK:
            return  # the problem is noted already
        if _has_regular_expression(schema):
            self._add(
                pointer,
                "A JSON Schema of a caller must have no regular expressions ('pattern').",
            )
            self.unsafe_to_build = True
        try:
            visits = measure(schema)
        except ValueError:
            return  # validation says why
        default = list(values_in(schema.get("default")))
        self._schema_work += visits * len(default)
        self._check_size(
            pointer,
            self._schema_work,
            _MAX_SCHEMA_WORK,
            "parts of JSON Schemas to check",
        )

    def _check_tool_options(
        self, entry: dict[str, Any], tool: Tool, pointer: str
    ) -> None:
        """Check the options of a tool's entry, which may only be stricter than those of the served tool."""
        if entry.get("idempotent") is True and not tool.idempotent:
            detail = f"The calls of the served tool '{tool.name}' may not be repeated."
            self._add(f"{pointer}/idempotent", detail)
        if entry.get("on_error") == "report" and not tool.reports_errors:
            detail = f"An error of the served tool '{tool.name}' fails the run."
            self._add(f"{pointer}/on_error", detail)
        if entry.get("approval") is False and tool.may_need_approval:
            detail = f"A person has to approve the calls of the served tool '{tool.name}'."
            self._add(f"{pointer}/approval", detail)
        if tool.timeout is not None:
            self._check_cap(entry, pointer, "timeout", tool.timeout)
        if tool.max_result_tokens is not None:
            self._check_cap(
                entry, pointer, "max_result_tokens", tool.max_result_tokens
            )

    def _check_bounds(
        self, value: dict[str, Any], pointer: str, key: str
    ) -> None:
        """Check the settings of an object that multiply its work, and the lengths of its lists."""
        for name, setting in self._caps.items():
            self._check_cap(value, pointer, name, setting)
        if key == "config":
            self._check_parameters(value, pointer)
            for name in ("max_loops", "max_corrections", "max_handoffs"):
                self._check_cap(value, pointer, name, "max_loops")
        self._check_defaults(value, pointer)
        for name, setting in self._sizes.items():
            size = len(as_array(value.get(name)))
            self._check_size(f"{pointer}/{name}", size, setting, name)

    def _check_parameters(self, config: dict[str, Any], pointer: str) -> None:
        """Check the provider's parameters, of which only those on the list may be named."""
        allowed = self._settings.allowed_parameters
        for name in as_object(config.get("parameters")):
            if name not in allowed:
                self._add(
                    f"{pointer}/parameters{json_pointer(name)}",
                    f"Parameter {short_repr(name)} is not allowed here.",
                    did_you_mean(name, allowed)
                    or "The service's operator lists them in PODWRIGHT_ALLOWED_PARAMETERS.",
                )

    def _check_cap(
        self,
        value: dict[str, Any],
        pointer: str,
        name: str,
        cap: float | str,
    ) -> None:
        """Note a number that exceeds its cap; the blueprint is still safe to build.

        Args:
            value: The object that has it.
            pointer: That of the object.
            name: Its key.
            cap: The largest that is allowed, or the setting with it.
        """
        number = value.get(name)
        most, way_out = self._limit(cap)
        if not isinstance(number, int | float) or number <= most:
            return
        detail = f"{name} is {short_repr(number)}; at most {most} is allowed."
        self._add(f"{pointer}/{name}", detail, way_out)

    def _check_defaults(self, value: dict[str, Any], pointer: str) -> None:
        """Check the loops and handoffs of an agent or a conductor that does not say how many it may do."""
        defaults: dict[str, int] = {}
        if "instructions" in value:
            defaults["max_loops"] = DEFAULT_MAX_LOOPS
        if handoffs_of(value):
            defaults["max_handoffs"] = DEFAULT_MAX_HANDOFFS
        most = self._settings.max_loops
        config = as_object(value.get("config"))
        for name, number in defaults.items():
            if number > most and name not in config:
                detail = (
                    f"{name} is {number} by default; at most {most} is allowed."
                )
                self._add(
                    f"{pointer}/config/{name}", detail, _way_out("max_loops")
                )

    def _check_size(
        self, pointer: str, number: int, limit: int | str, unit: str
    ) -> bool:
        """Whether a number is within its limit; if not, it is noted, and the blueprint is then unsafe to build.

        Args:
            pointer: Where it is noted.
            number: How many there are.
            limit: How many are allowed, or the setting with it.
            unit: What is counted.
        """
        most, way_out = self._limit(limit)
        if number <= most:
            return True
        self._add(
            pointer, f"{number} {unit}; at most {most} are allowed.", way_out
        )
        self.unsafe_to_build = True
        return False

    def _limit(self, limit: float | str) -> tuple[float, str]:
        """Return a limit, which may be that of a setting, and the way out for a blueprint that exceeds it."""
        if isinstance(limit, str):
            return getattr(self._settings, limit), _way_out(limit)
        return limit, ""

    def _add(self, pointer: str, detail: str, suggestion: str = "") -> None:
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(Problem(pointer, detail, suggestion))


def _way_out(setting: str) -> str:
    return f"Make it smaller, or let the service's operator raise {variables_of(setting)[0]}."


def _name_for_agents(
    blueprint: Mapping[str, Any], agents: Blueprints, served: Set[str]
) -> str | None:
    """The name by which agents may use a blueprint that comes with them; None if another one has it."""
    name = blueprint.get("name")
    if not isinstance(name, str) or name in agents or name in served:
        return None
    return name


def _used_by(
    blueprint: Mapping[str, Any], parts: Mapping[str | None, _Part]
) -> set[str]:
    """The names of the parts that are built before a blueprint.

    Agents that hand off to each other may form circles, so that they are no such parts, but those that end these are.
    """
    used = {name for name in member_names(blueprint) if name in parts}
    reached = handoff_names(blueprint)
    for name in reached:
        part = parts.get(name)
        if part is None:
            continue
        further = handoffs_of(part.blueprint)
        reached += [other for other in further if other not in reached]
        if not further:
            used.add(name)
    return used


def _has_regular_expression(schema: dict[str, Any]) -> bool:
    # a larger one is refused for its size
    for value in islice(values_in(schema), MAX_VALUES):
        part = as_object(value)
        if "patternProperties" in part or isinstance(part.get("pattern"), str):
            return True
    return False


def _has_parameters_of(function: Mapping[str, Any], tool: Tool) -> bool:
    """Whether a function in a blueprint has the parameters of a served tool: of its blueprint or of its code."""
    parameters = _parameters(function)
    schemas = (tool.schema, tool.own_schema)
    return any(
        parameters == _parameters(schema["function"]) for schema in schemas
    )


def _parameters(function: Mapping[str, Any]) -> str:
    """The parameters of a tool as a model is shown them, without their descriptions, as canonical JSON."""
    parameters = (
        object_parameters(function["parameters"]) or function["parameters"]
    )
    text = json.dumps([parameters, function.get("strict", False)])
    data = json.loads(text, object_hook=_without_description)
    return json.dumps(data, sort_keys=True)


def _without_description(item: dict[str, Any]) -> dict[str, Any]:
    if isinstance(item.get("description"), str):
        del item["description"]
    return item
