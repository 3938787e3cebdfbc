"""What is known of the models of a component before the first call: clients, keys, prices."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress

from podwright.components import Component
from podwright.connection.schemas import ModelClient
from podwright.errors import ConfigurationError, PodwrightError, Problem
from podwright.folders.loader import unknown_agent_error
from podwright.folders.walks import models_of, walk
from podwright.messages.usage import Usage
from podwright.models import EVERY, Model, choose_client, resolve, use_model
from podwright.models.prices import pricing
from podwright.models.prices.pricing import operators_file
from podwright.run.component import ModelComponent
from podwright_service.settings import Settings

_ONE_CALL = Usage(input_tokens=1, output_tokens=1)


def clients_of(models: Iterable[str]) -> dict[str, ModelClient]:
    """How each of these models is called, as far as its provider is known."""
    clients: dict[str, ModelClient] = {}
    for name in models:
        with suppress(PodwrightError):
            choice = choose_client(name)
            clients[name] = ModelClient(
                client=choice.client, reason=choice.reason
            )
    return clients


def called_models(component: Component, settings: Settings) -> list[Model]:
    """The models that a component, its parts and inline blueprints call, those of the settings included; each once.

    Raises:
        UnknownModelError: No installed provider serves one of them.
        ConfigurationError: The settings have a model for an agent that does not exist.
    """
    check_agents(component, settings)
    with use_model(settings.models):
        models = models_of(component)
        every = settings.models.get(EVERY)
        if every is not None:
            models.append(resolve(every))
    return list(dict.fromkeys(models))


def check_agents(component: Component, settings: Settings) -> None:
    """Check that the agents exist that the settings have models for.

    Raises:
        ConfigurationError: One does not.
    """
    agents = agents_with_models(component)
    for name in settings.models:
        if name not in agents and name != EVERY:
            raise unknown_agent_error(name, settings.place_of("model"), agents)


def agents_with_models(component: Component) -> set[str]:
    """The names of the agents and conductors in a component, itself included."""
    return {
        part.name
        for part in walk(component)
        if isinstance(part, ModelComponent)
    }


def _resolved(model: Model | str) -> Model:
    if isinstance(model, str):
        return resolve(model)
    return model


def price_warnings(
    models: Iterable[Model | str],
    others: Iterable[str] = (),
    reported: Iterable[str] = (),
) -> Iterator[Problem]:
    """The models, or those with these names, whose calls have no known cost, and the prices of models not here.

    Args:
        models: The models that are called.
        others: Names of further models that may have a price.
        reported: Names of models that functions call by themselves, and report.

    Raises:
        UnknownModelError: No installed provider serves one of them.
        ConfigurationError: The price file is invalid.
    """
    names = [*others]
    for name_or_model in models:
        model = _resolved(name_or_model)
        names.append(model.name)
        if model.reports_cost or model.has_price():
            continue
        yield _unknown_price(model.name)
    for name in reported:
        names.append(name)
        pricing.load(name)
        if pricing.lookup(name, _ONE_CALL) is None:
            yield _unknown_price(name)
    for problem in operators_file().unused(names):
        yield Problem("", problem.detail, problem.suggestion)


def _unknown_price(model: str) -> Problem:
    return Problem(
        "",
        f"The price of '{model}' is unknown, so what its calls cost will be.",
        "Add it to a file of your own prices (PODWRIGHT_PRICES).",
    )


def check_cost_limits(
    component: Component, settings: Settings, models: Collection[Model]
) -> None:
    """Refuse a cost limit of models without a price: each of their calls would be refused.

    Args:
        component: The served component.
        settings: The limit of all runs, and whether such a component may start.
        models: The models that are called.

    Raises:
        ConfigurationError: A model has none.
    """
    if settings.allow_unpriced_models:
        return
    limited: list[Model] = []
    if settings.run_cost is not None:
        limited += models
    for part in walk(component):
        if part.limits is None or part.limits.cost is None:
            continue
        with use_model(settings.models):
            limited += models_of(part)
    for model in limited:
        if not model.has_price():
            raise ConfigurationError(
                f"Runs have a cost limit, and the price of '{model.name}' is unknown, so its calls would be refused.",
                suggestion="Add the price to a file of your own (PODWRIGHT_PRICES), or remove the limit; "
                "PODWRIGHT_ALLOW_UNPRICED_MODELS=true starts the service all the same.",
            )


def model_errors(models: Iterable[Model | str]) -> Iterator[PodwrightError]:
    """Why calls of these models, or of those with these names, would fail; see `Model.check` and `load_prices`."""
    for name_or_model in models:
        try:
            model = _resolved(name_or_model)
            model.check()
            model.load_prices()
        except PodwrightError as error:
            yield error
