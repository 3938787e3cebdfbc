"""Models: the interface, the registry of providers, and the models that need no network."""

from podwright.messages.messages import ModelRequest, ModelResponse
from podwright.models.base import Connection, Model, TokenCallback
from podwright.models.offline.offline import EchoModel
from podwright.models.offline.scripted import FunctionModel, ScriptedModel
from podwright.models.recorded_answers import RecordedAnswers
from podwright.models.registry import (
    EVERY,
    MODEL_CLIENTS,
    ClientChoice,
    ModelChoice,
    choose_client,
    register_provider,
    resolve,
    use_model,
)
from podwright.models.replay import RecordingModel, ReplayModel

__all__ = [
    "EVERY",
    "MODEL_CLIENTS",
    "ClientChoice",
    "Connection",
    "EchoModel",
    "FunctionModel",
    "Model",
    "ModelChoice",
    "ModelRequest",
    "ModelResponse",
    "RecordedAnswers",
    "RecordingModel",
    "ReplayModel",
    "ScriptedModel",
    "TokenCallback",
    "choose_client",
    "register_provider",
    "resolve",
    "use_model",
]
