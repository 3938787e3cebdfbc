"""The pipeline: agents in a row, each working on the output of the one before (spec §2.4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from typing_extensions import Unpack

from podwright.blueprints.validation import Blueprint
from podwright.chats.chat_messages import (
    filled_instructions,
    inputs_of,
    one_turn,
)
from podwright.chats.hooks import (
    OUTPUT,
    Hooks,
    after_work,
    before_work,
    read_changed_output,
)
from podwright.components.members import TeamComponent, entries_of
from podwright.data.json_data import to_json_data, to_text
from podwright.estimates.sizes import Size
from podwright.estimates.walk import Forecast, Given, Walk
from podwright.kinds import Kind
from podwright.run.component import Component
from podwright.run.options import DescribedOptions, parse_arguments
from podwright.run.run import Run, Task
from podwright.tools.entries import HookFunctions, to_hooks
from podwright.workflows.template_names import name_problems


class Pipeline(TeamComponent):
    """Agents in a row; the output of each is the input of the next.

    Args:
        name: Its name.
        steps: The agents, in order.
        model: The model for agents of its blueprint without a model of their own.
        before: Functions that are called before its work, with named values, which they may change or refuse.
        after: Functions that are called with its answer, which they may change or refuse.
        **options: `description` and `verbose`; see `DescribedOptions`.

    Raises:
        BlueprintValidationError: An argument has a wrong type or value.
    """

    kind: ClassVar[Kind] = "pipeline"

    def __init__(
        self,
        name: str,
        steps: Sequence[Component],
        model: str | None = None,
        *,
        before: HookFunctions = (),
        after: HookFunctions = (),
        **options: Unpack[DescribedOptions],
    ) -> None:
        hooks = to_hooks(before, after)
        fields: Blueprint = {
            "name": name,
            "steps": entries_of(steps, "pipeline step"),
            **hooks.names,
        }
        if model is not None:
            fields["config"] = {"model": model}
        parsed = parse_arguments("pipeline", fields, options)
        super().__init__(parsed, name_problems(parsed))
        self._set_members(steps)
        self._hook_functions = hooks.functions

    def _set_members(self, members: Sequence[Component]) -> None:
        self._steps = list(members)

    @property
    def steps(self) -> Sequence[Component]:
        """Its agents, in order."""
        return self._steps

    @property
    def answering_step(self) -> tuple[int, Component]:
        """The last agent, with its index."""
        return len(self._steps) - 1, self._steps[-1]

    def members(self) -> Mapping[str, Component]:
        """Its agents by name."""
        return {step.name: step for step in self._steps}

    def need(self, walk: Walk, given: Given) -> Forecast:
        """Return what its agents need, each with the answer of the one before."""
        need, given = before_work(walk, self, given)
        data: Size | Mapping[str, Size] = given.content or given.named
        answer = Size(0)
        for index, step in enumerate(self._steps):
            is_last = index == len(self._steps) - 1
            forecast = walk.run(
                step,
                walk.given(
                    step,
                    data,
                    given.every_value,
                    earlier=given.earlier if index == 0 else None,
                    response_model=given.response_model if is_last else None,
                ),
            )
            need += forecast.need
            answer = forecast.answer
            data = answer
        after, answer = after_work(walk, self, answer)
        return Forecast(need + after, answer)

    async def perform(self, run: Run, task: Task) -> Any:
        """Run the agents one after the other; the last one gives the answer."""
        hooks = Hooks(run, self, task)
        task = await hooks.begin()
        value: Any = task.input
        values = inputs_of(task)
        for step in self._steps:
            # before the first model call is paid
            filled_instructions(step, values)
        last = len(self._steps) - 1
        for index, step in enumerate(self._steps):
            path = (*run.path, index)
            response_model = None
            if index == last:
                response_model = task.response_model
            with run.step(step.name, "agent_step", path):
                step_task = await step.nested_task(
                    value, values, response_model
                )
                if index == 0:
                    step_task = replace(step_task, messages=task.messages)
                step_run = run.child(step, path)
                value = await step_run.execute(step_task)
            if index != last:
                value = to_text(step.output(value, step_run.data))
            else:
                run.data = step_run.data
                run.finish_reason = step_run.finish_reason
        if self.hooks("after"):
            value = await self._finish(hooks, run, value, task)
        answer = to_text(self.output(value, run.data))
        run.messages = one_turn(
            task.messages, task.parsed_input.message(), answer
        )
        return value

    async def _finish(
        self, hooks: Hooks, run: Run, value: Any, task: Task
    ) -> Any:
        """Call the functions after the work, and return the answer, or another one that they gave.

        Raises:
            ToolError: It does not fit the type of the answers.
        """
        output = to_json_data(self.output(value, run.data))
        changed = await hooks.finish(output, task.messages)
        if OUTPUT not in changed:
            return value
        new_value = await read_changed_output(
            changed[OUTPUT],
            output,
            task.response_model or self.response_schema,
            self.name,
        )
        run.data = None
        if not isinstance(new_value, str):
            run.data = to_json_data(new_value)
        run.finish_reason = "stop"
        return new_value
