"""Models: the interface, the registry of providers, and the models that need no network."""

from podwright.messages import Message, ModelRequest, ModelResponse, ToolCall
from podwright.models.base import Connection, Model, TokenCallback
from podwright.models.offline import EchoModel, FunctionModel, ReplayModel, ScriptedModel
from podwright.models.registry import DEFAULT, MODEL_CLIENTS, Provider, register_provider, resolve, use_model

__all__ = [
    "DEFAULT",
    "MODEL_CLIENTS",
    "Connection",
    "EchoModel",
    "FunctionModel",
    "Message",
    "Model",
    "ModelRequest",
    "ModelResponse",
    "Provider",
    "ReplayModel",
    "ScriptedModel",
    "TokenCallback",
    "ToolCall",
    "register_provider",
    "resolve",
    "use_model",
]
