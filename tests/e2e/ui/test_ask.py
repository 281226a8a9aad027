"""Asking, as somebody does who has a driver, an image or a lockfile at hand."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import expect

FIXTURES = Path(__file__).parents[2] / "fixtures"
STACK = "cuda=12.1,arch=compute_80"


def test_the_comforting_phrase_is_answered_with_reasons_and_a_fix_that_re_asks(open_page):
    page = open_page("ask")
    page.get_by_label("Driver").fill("525.60.13")
    page.get_by_label("GPU").fill("A100-SXM4-80GB")
    page.get_by_label("Stack").fill(STACK)
    page.get_by_role("button", name="Ask", exact=True).click()
    answer = page.locator(".answer")
    expect(answer).to_contain_text("Denied")
    expect(answer).to_contain_text("CG202")
    answer.get_by_role("link", name="raise the driver to 530.30.02 or newer").first.click()
    expect(answer).to_contain_text("Allowed")
    assert "driver=530.30.02" in page.url


def test_the_address_holds_the_whole_question(open_page):
    page = open_page("ask?target=prod-a100&stack=cuda%3D12.4,cudnn%3D9.1.0,torch%3D2.4.1%2Bcu124")
    expect(page.locator(".answer")).to_contain_text("CG102")
    expect(page.locator("#q-target")).to_have_value("prod-a100")
    page.get_by_text("Ask from a script").click()
    expect(page.locator(".answer")).to_contain_text("compatgate check --server")
    expect(page.locator(".answer")).to_contain_text("curl -s")


def test_lists_narrow_to_the_versions_that_fit(open_page):
    page = open_page("ask?driver=535.104.05&gpu=L4&stack=torch%3D2.4.1")
    page.locator("#versions").get_by_role("link", name="cuDNN").click()
    versions = page.locator("#versions")
    expect(versions).to_contain_text("of the newest 48 fit")
    versions.get_by_role("link", name="9.1.0").click()
    expect(page.get_by_label("Stack")).to_have_value("torch=2.4.1,cudnn=9.1.0")


def test_nvidia_smi_output_fills_the_question(open_page):
    page = open_page("ask")
    text = (FIXTURES / "nvidia_smi" / "query-r418-v100.txt").read_text()
    page.get_by_label("Output of nvidia-smi").fill(text)
    page.get_by_role("button", name="Read").click()
    expect(page.get_by_role("status")).to_contain_text("nvidia-smi output")
    expect(page.get_by_label("Driver")).to_have_value("418.67")


def test_a_lockfile_fills_the_question_and_keeps_what_it_leaves_open(open_page):
    page = open_page("ask?target=prod-a100")
    page.get_by_label("Output of nvidia-smi").fill(
        "--index-url https://wheels.example/simple\ntorch==2.4.1\nnumpy==1.26.0\n"
    )
    page.get_by_role("button", name="Read").click()
    expect(page.locator(".answer")).to_contain_text("does not say which CUDA torch 2.4.1")


def test_what_is_nothing_says_what_can_be_pasted(open_page):
    page = open_page("ask")
    page.get_by_label("Output of nvidia-smi").fill("hello, is this thing on?\nwell\n")
    page.get_by_role("button", name="Read").click()
    expect(page.get_by_role("alert").first).to_contain_text("Paste the output of nvidia-smi")
    expect(page.get_by_label("Output of nvidia-smi")).to_have_value(
        "hello, is this thing on?\nwell\n"
    )
