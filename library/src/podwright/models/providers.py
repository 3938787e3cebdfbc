"""Providers of the OpenAI-compatible client, with LiteLLM's names and environment variables for them.

So a blueprint and an environment mean the same with either client.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a provider answers, and how it differs from others."""

    url: str = ""
    """The default base URL; `/chat/completions` is appended. Empty if only the operator knows it."""
    keys: tuple[str, ...] = ()
    """Environment variables of the API key; the first that is set counts."""
    urls: tuple[str, ...] = ()
    """Environment variables of another base URL; the first that is set counts."""
    suffix: str = ""
    """What a base URL ends with; appended if it is missing."""
    json_schema: bool = True
    """Whether its models take `response_format` with a JSON Schema; if not, structured output is a tool call."""
    stream_options: bool = True
    """Whether it takes `stream_options`, which ask for the usage of a stream."""
    reports_cost: bool = False
    """Whether `usage.cost` of its responses is the cost of the call in USD."""
    seed: str = "seed"
    """Its name for the setting `seed`."""
    model_prefix: str = ""
    """Put before the name of a model that does not begin with the first part of this."""


def _of(name: str, url: str = "", *, suffix: str = "", json_schema: bool = True) -> Endpoint:
    return Endpoint(url, (f"{name}_API_KEY",), (f"{name}_API_BASE",), suffix, json_schema)


ENDPOINTS: dict[str, Endpoint] = {
    "cerebras": _of("CEREBRAS", "https://api.cerebras.ai/v1"),
    "dashscope": _of("DASHSCOPE", "https://dashscope.aliyuncs.com/compatible-mode/v1", json_schema=False),
    "deepinfra": _of("DEEPINFRA", "https://api.deepinfra.com/v1/openai", json_schema=False),
    "deepseek": _of("DEEPSEEK", "https://api.deepseek.com", json_schema=False),
    "fireworks_ai": Endpoint(
        "https://api.fireworks.ai/inference/v1",
        ("FIREWORKS_API_KEY", "FIREWORKS_AI_API_KEY", "FIREWORKSAI_API_KEY", "FIREWORKS_AI_TOKEN"),
        ("FIREWORKS_API_BASE",),
        model_prefix="accounts/fireworks/models/",
    ),
    "groq": _of("GROQ", "https://api.groq.com/openai/v1", json_schema=False),
    "hosted_vllm": _of("HOSTED_VLLM"),
    "hyperbolic": _of("HYPERBOLIC", "https://api.hyperbolic.xyz/v1", json_schema=False),
    "litellm_proxy": _of("LITELLM_PROXY"),
    "llamafile": _of("LLAMAFILE", "http://127.0.0.1:8080/v1"),
    "lm_studio": _of("LM_STUDIO"),
    "mistral": Endpoint(
        "https://api.mistral.ai/v1",
        ("MISTRAL_AZURE_API_KEY", "MISTRAL_API_KEY"),
        ("MISTRAL_AZURE_API_BASE",),
        suffix="/v1",
        stream_options=False,
        seed="random_seed",
    ),
    "moonshot": _of("MOONSHOT", "https://api.moonshot.ai/v1", json_schema=False),
    "nebius": _of("NEBIUS", "https://api.studio.nebius.ai/v1"),
    "novita": _of("NOVITA", "https://api.novita.ai/v3/openai", json_schema=False),
    "nvidia_nim": _of("NVIDIA_NIM", "https://integrate.api.nvidia.com/v1", json_schema=False),
    "ollama": _of("OLLAMA", "http://localhost:11434", suffix="/v1"),
    "ollama_chat": _of("OLLAMA", "http://localhost:11434", suffix="/v1"),
    "openai": Endpoint("https://api.openai.com/v1", ("OPENAI_API_KEY",), ("OPENAI_BASE_URL", "OPENAI_API_BASE")),
    "openrouter": Endpoint(
        "https://openrouter.ai/api/v1",
        ("OPENROUTER_API_KEY", "OR_API_KEY"),
        ("OPENROUTER_API_BASE",),
        reports_cost=True,
    ),
    "perplexity": Endpoint(
        "https://api.perplexity.ai",
        ("PERPLEXITYAI_API_KEY", "PERPLEXITY_API_KEY"),
        ("PERPLEXITY_API_BASE",),
        stream_options=False,
        reports_cost=True,
    ),
    "sambanova": _of("SAMBANOVA", "https://api.sambanova.ai/v1", json_schema=False),
    "together_ai": Endpoint(
        "https://api.together.ai/v1",
        ("TOGETHER_API_KEY", "TOGETHER_AI_API_KEY", "TOGETHERAI_API_KEY", "TOGETHER_AI_TOKEN"),
        ("TOGETHER_AI_API_BASE",),
    ),
    "vercel_ai_gateway": Endpoint(
        "https://ai-gateway.vercel.sh/v1",
        ("VERCEL_AI_GATEWAY_API_KEY", "VERCEL_OIDC_TOKEN"),
        ("VERCEL_AI_GATEWAY_API_BASE",),
    ),
    "xai": _of("XAI", "https://api.x.ai/v1"),
    "zai": _of("ZAI", "https://api.z.ai/api/paas/v4", json_schema=False),
}
"""By provider, the part of a model's name before the first slash."""

ANY = Endpoint()
"""An unknown provider at a base URL of the operator."""

SELF_HOSTED = frozenset({"hosted_vllm", "litellm_proxy", "llamafile", "lm_studio", "ollama", "ollama_chat"})
"""Servers that operators run themselves; no price list knows what their models cost."""
