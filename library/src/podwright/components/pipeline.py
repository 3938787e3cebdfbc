"""The pipeline: agents in a row, each working on what the one before it gave (spec §2.4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Self

from typing_extensions import Unpack

from podwright import blueprints
from podwright.blueprints import Blueprint
from podwright.components.base import (
    Component,
    DescribedOptions,
    PromptComponent,
    by_name,
    checked,
    described,
)
from podwright.components.members import entries_for, rebuilt
from podwright.events import Kind
from podwright.run import Run, Task


class Pipeline(PromptComponent):
    """Agents in a row; the output of each is the input of the next.

    Args:
        name: Its name.
        steps: The agents, in order.
        model: The model of agents in its blueprint that name none.
        **options: A `description`, `verbose`; see `DescribedOptions`.

    Raises:
        BlueprintValidationError: An argument has a wrong type or value.
    """

    __slots__ = ("_steps",)
    kind: ClassVar[Kind] = "pipeline"

    def __init__(
        self,
        name: str,
        steps: Sequence[Component],
        model: str | None = None,
        **options: Unpack[DescribedOptions],
    ) -> None:
        blueprint: Blueprint = {"type": "Pipeline", "version": blueprints.VERSION, "name": name}
        blueprint["steps"] = entries_for(steps, "pipeline step")
        if model is not None:
            blueprint["config"] = {"model": model}
        kept = described(blueprint, options, settings=False)
        super().__init__(checked(blueprint, "pipeline"), kept)
        self._steps = list(steps)

    @classmethod
    def from_blueprint(
        cls,
        blueprint: Mapping[str, Any],
        tools: Sequence[Callable[..., Any]] = [],
        validate: bool = True,
        *,
        agents: Mapping[str, Component] | None = None,
        **kwargs: Any,
    ) -> Self:
        """Rebuild a pipeline.

        Args:
            blueprint: What `to_blueprint` gave.
            tools: The functions behind the tools of its agents.
            validate: If false, unknown keys are dropped, and tools that are missing or no longer fit are let pass.
            agents: Components for the steps that are names only.
            **kwargs: Values that replace the blueprint's, such as `name` or `model`.

        Raises:
            BlueprintValidationError: The blueprint is invalid; all problems at once.
            ConfigurationError: A keyword is no value of a pipeline.
        """
        parts = rebuilt("pipeline", blueprint, tools, validate, by_name(agents, "agents"), kwargs)
        self = cls.__new__(cls)
        PromptComponent.__init__(self, parts.blueprint, parts.options)
        self._steps = parts.members
        return self

    @property
    def steps(self) -> Sequence[Component]:
        """Its agents, in order."""
        return self._steps

    def members(self) -> Mapping[str, Component]:
        """Its agents by name."""
        return {step.name: step for step in self._steps}

    async def perform(self, run: Run, task: Task) -> Any:
        """Run the agents one after the other; the last one gives the answer."""
        value: Any = task.input
        for index, step in enumerate(self._steps):
            path = (*run.path, index)
            last = index == len(self._steps) - 1
            with run.step(step.name, "agent_step", path):
                inner = Task(value, task.response_model if last else None)
                value = await run.child(step, path).execute(step, inner)
            if not last:
                value = step.text(value)
        return value
