"""The stories that the gate is for, walked through the pages."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import expect


def test_the_comforting_phrase(open_page):
    """Before anyone rolls a driver, every blessed stack is told what it does to it."""
    page = open_page("targets/staging-h100")
    page.get_by_role("link", name="Change the driver").click()
    page.get_by_role("combobox", name="Driver").fill("525.60.13")
    page.get_by_role("button", name="Show").click()
    expect(page.locator("#outcome")).to_contain_text("breaks")
    expect(page.locator("#outcome")).to_contain_text("cannot compile PTX")
    with page.expect_download() as download:
        page.get_by_role("link", name="CSV").click()
    assert "torch28-cu128" in Path(download.value.path()).read_text()


def test_the_rebuilt_image(open_page):
    """A rebuild pulled another major of cuDNN: denied, with what would do instead."""
    stack = "cuda%3D12.2,cudnn%3D9.1.0,tensorflow%3D2.15.0"
    page = open_page(f"ask?target=prod-a100&stack={stack}&image=registry.example/ocr:2")
    answer = page.locator(".answer")
    expect(answer).to_contain_text("Denied")
    expect(answer).to_contain_text("CG402")
    answer.locator(".fixes a", has_text="8.9").first.click()
    expect(page.get_by_role("textbox", name="What if")).to_have_value("cudnn=8.9.0")
    expect(answer).not_to_contain_text("CG402 framework-cudnn")


def test_the_other_gpu(open_page):
    """It worked on A100; production is L4, for which the image has no code."""
    page = open_page("ask?target=inference-l4&stack=cuda%3D12.4,arch%3Dsm_80")
    expect(page.locator(".answer")).to_contain_text("CG801")
    expect(page.locator(".answer")).not_to_contain_text("No code for")  # sm_80 runs on 8.9
    page = open_page("ask?target=inference-l4&stack=cuda%3D12.4,arch%3Dsm_70")
    expect(page.locator(".answer")).to_contain_text("CG201")
    expect(page.locator(".answer")).to_contain_text("No code for L4")


def test_the_postmortem(open_page):
    """What would the gate have said, and what did it say?"""
    stack = "cuda%3D12.1,cudnn%3D8.9.7,torch%3D2.2.2%2Bcu121"
    page = open_page(f"ask?target=prod-a100&stack={stack}")
    expect(page.locator(".answer")).to_contain_text("CG802")  # revoked by now
    page.get_by_label("As of").fill("1")
    page.get_by_role("button", name="Ask", exact=True).click()
    expect(page.locator(".answer")).to_contain_text("CG803")  # it was deprecated then
    page.get_by_role("link", name="the decision log").click()
    expect(page.locator("table.data").last).to_contain_text("registry.example/team/app:1.4")


def test_the_slow_regression(open_page):
    """Nothing crashed, and the judge saw that convolutions got slower on this GPU."""
    page = open_page("runs?state=failed")
    page.get_by_role("link", name="run_ef2d127de37b942b").click()
    step = page.locator("main")
    expect(step).to_contain_text("12.5 % higher than the baseline")
    expect(step).to_contain_text("the tolerance is 5 %")
    step.get_by_role("link", name="baseline 1").first.click()
    expect(page.locator("main")).to_contain_text("approved")
