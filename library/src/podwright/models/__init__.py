"""Models: the interface, the registry of providers, and the models that need no network."""

from podwright.messages import ModelRequest, ModelResponse
from podwright.models.base import Connection, Model, TokenCallback
from podwright.models.offline import EchoModel, FunctionModel, ReplayModel, ScriptedModel
from podwright.models.registry import MODEL_CLIENTS, register_provider, resolve, use_model

__all__ = [
    "MODEL_CLIENTS",
    "Connection",
    "EchoModel",
    "FunctionModel",
    "Model",
    "ModelRequest",
    "ModelResponse",
    "ReplayModel",
    "ScriptedModel",
    "TokenCallback",
    "register_provider",
    "resolve",
    "use_model",
]
