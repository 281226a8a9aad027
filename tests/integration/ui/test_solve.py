"""The page that finds stacks, as the server makes it."""

from __future__ import annotations

import html
import re


def test_each_stack_links_to_its_answer(pages):
    client = pages()
    found = client.get("/ui/solve?target=prod-a100&want=torch")
    assert found.status_code == 200
    links = [html.unescape(one) for one in re.findall(r'href="(/ui/ask\?[^"]+)"', found.text)]
    assert len(links) >= 3
    answer = client.get(links[0]).text
    assert "<h2>Allowed" in answer


def test_without_a_stack_the_page_names_the_rules(pages):
    address = "/ui/solve?driver=535.183.01&gpu=V100-SXM2-16GB&want=torch%3E%3D2.15"
    text = pages().get(address).text
    assert "No known stack passes" in text
    assert "/ui/rules/CG405" in text


def test_a_search_that_was_cut_short_decides_nothing(pages):
    client = pages()
    address = "/ui/solve?driver=580.95.05&gpu=H100-SXM5-80GB&want="
    for want, reason in (
        ("torch,torchvision%3D%3D0.1.2", "not every combination was tried"),
        ("no-such-thing", "the facts know no release of no-such-thing"),
    ):
        text = client.get(address + want).text
        assert "No decision: no stack was found that passes" in text
        assert 'class="panel answer is-unknown"' in text
        assert reason in text


def test_a_bad_question_says_what_is_wrong(pages):
    client = pages()
    for address, field in (
        ("target=prod-a100&want=torch%3E%3E2", "want.torch"),
        ("target=gone&want=torch", "target"),
        ("target=prod-a100&want=torch&stack=torch", "torch"),
    ):
        answer = client.get(f"/ui/solve?{address}")
        assert answer.status_code in (400, 404), address
        assert field in answer.text


def test_the_page_ask_leads_to_it(pages):
    text = pages().get("/ui/ask?target=prod-a100").text
    assert 'action="/ui/solve"' in text
