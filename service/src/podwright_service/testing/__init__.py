"""Tests of components as they are served: in a process on this machine, or in their image.

    from podwright_service.testing import ComponentContainer, ModelStub, ToolCall

    def test_it_adds():
        with ModelStub(ToolCall.of("add_numbers", numbers=[2, 3]), "It is 5.", name="openai/gpt-4o-mini") as model:
            with ComponentContainer("calculator", model=model) as calculator:
                assert calculator.run("What is 2 + 3?") == "It is 5."

Install it with the extra `podwright-service[testing]`. The service itself does not import it. The public names are
listed in `__init__.pyi` and imported on first use, so that a stub runs in an image, which does not have the extra.
"""

# pyright: basic
# lazy_loader has no type hints; type checkers of users read the stub
import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
