"""The API page in a browser: Swagger UI, as a person uses it."""

from __future__ import annotations

from playwright.sync_api import Locator, Page, expect
from tests.service.support import Serve

from podwright import Agent, EchoModel

KEY = "a-key-of-twenty-letters"
GUIDE = Agent("<guide>", "Help.", EchoModel())


def operation(page: Page, name: str) -> Locator:
    """An operation, opened and ready to be sent."""
    block = page.locator(f"[id='operations-{name}']")
    block.locator(".opblock-summary-control").click()
    block.get_by_role("button", name="Try it out").click()
    return block


def test_a_person_runs_the_component(serve: Serve, page: Page) -> None:
    """An input that is typed into the page is answered there, and the page names the component."""
    page.goto(f"{serve(GUIDE).base_url}/docs")
    expect(page).to_have_title("<guide>")
    expect(page.get_by_role("button", name="Authorize")).to_have_count(0)
    run = operation(page, "runs-run_run_post")
    run.locator("textarea.body-param__text").fill(
        '{"input": "typed by a person"}'
    )
    run.get_by_role("button", name="Execute").click()
    answer = run.locator(".live-responses-table .response-col_description").last
    expect(answer).to_contain_text("Echo: typed by a person")
    expect(page.locator("section.models")).to_contain_text("AgentBlueprint")


def test_every_example_works_in_the_page(serve: Serve, page: Page) -> None:
    """Each operation succeeds as the page shows it, with each of its examples."""
    client = serve(GUIDE)
    paths = client.get("/openapi.json").json()["paths"]
    page.goto(f"{client.base_url}/docs")
    blocks = page.locator(".opblock")
    expect(blocks).to_have_count(sum(map(len, paths.values())))
    for name in blocks.evaluate_all(
        "blocks => blocks.map(block => block.id.replace('operations-', ''))"
    ):
        block = operation(page, name)
        choice = block.locator("select.examples-select-element")
        for index in range(max(1, choice.locator("option").count())):
            if choice.is_visible():
                choice.select_option(index=index)
            with page.expect_response(
                lambda response: "/docs" not in response.url
            ) as response:
                block.get_by_role("button", name="Execute").click()
            assert response.value.status == 200, (name, index)
        # an open one slows the page down
        block.locator(".opblock-summary-control").click()


def test_the_page_authorizes(serve: Serve, page: Page) -> None:
    """With API keys, the page names the component and sends the key once it got one; its Authorize button drops it."""
    page.goto(f"{serve(GUIDE, api_keys=(KEY,)).base_url}/docs")
    expect(page).to_have_title("API")
    page.get_by_label("API key").fill(KEY)
    page.get_by_role("button", name="Load").click()
    expect(page).to_have_title("<guide>")
    info = operation(page, "info-info_info_get")
    execute = info.get_by_role("button", name="Execute")
    status = info.locator(".live-responses-table td:not(.col_header)").first
    execute.click()
    expect(status).to_contain_text("200")
    page.locator(".auth-wrapper > .authorize").click()
    page.get_by_role("button", name="Remove authorization").click()
    page.locator(".btn-done").click()
    execute.click()
    expect(status).to_contain_text("401")
