"""The page in a real browser: by keyboard alone, on phone and desktop, light and dark."""

from __future__ import annotations

from pathlib import Path
from string import ascii_lowercase
from typing import Any

import pytest

from tests.runtime.serving.http.conftest import KEY, Served, serving


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [375, 1280])
def test_a_conversation(browser: Any, served: Served, width: int, scheme: str) -> None:
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
    page = context.new_page()
    complaints: list[str] = []
    hosts: set[str] = set()
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: hosts.add(request.url.split("/")[2]))
    page.goto(served.url)
    _shows(page, "#model", "alphabet")
    assert page.evaluate("document.activeElement.id") == "text"
    page.keyboard.type("abc<b>")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("j")
    page.keyboard.press("Enter")
    page.wait_for_selector("#figures:not([hidden])")
    page.wait_for_selector("#send:enabled")
    assert page.inner_text("li.user") == "abc<b>\nj"
    assert page.inner_text("li.assistant") == ascii_lowercase[10:]
    drafted = page.locator("li.assistant .draft").all_inner_texts()
    own = page.locator("li.assistant .own").all_inner_texts()
    assert "".join(drafted)
    assert "".join(own)
    assert sorted("".join([*drafted, *own])) == list(ascii_lowercase[10:])
    assert page.inner_text("#speed").endswith("tokens/s")
    assert page.inner_text("#plain").endswith("tokens/s")
    assert page.evaluate("document.activeElement.id") == "text"
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.keyboard.type("y")
    page.keyboard.press("Enter")
    _shows(page, "li.assistant >> nth=1", "z")
    assert complaints == []
    assert hosts == {served.url.split("/")[2]}
    context.close()


def test_stop_key_and_error(browser: Any, package: Path) -> None:
    with serving(package, api_keys=frozenset([KEY])) as served:
        page = browser.new_page()
        page.goto(served.url)
        _shows(page, "#model", "(needs an API key: see Options)")
        page.fill("#text", "a")
        page.press("#text", "Enter")
        page.wait_for_selector("li.error")
        assert "API key" in page.inner_text("li.error")
        page.click("summary")
        page.fill("#key", KEY)
        page.press("#key", "Tab")
        _shows(page, "#model", "alphabet")
        page.fill("#tokens", "3")
        page.fill("#text", "a")
        page.press("#text", "Enter")
        page.wait_for_selector("li.note")
        assert page.inner_text("li.note") == "(cut: the limit of tokens)"
        page.click("#reset")
        assert page.locator("#talk li").count() == 0
        page.close()


def _shows(page: Any, place: str, text: str) -> None:
    """Wait for a text; not by `wait_for_function`, which the page's policy forbids."""
    from playwright.sync_api import expect

    expect(page.locator(place)).to_have_text(text)
