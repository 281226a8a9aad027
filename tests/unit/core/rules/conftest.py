"""Records of a test's own, beside the shipped facts."""

import pytest


@pytest.fixture
def ask_with(facts, ask, monkeypatch):
    """Ask with records of one's own beside the shipped facts."""

    def asked(pool, stack, *records, **options):
        by_name = {}
        for one in records:
            by_name.setdefault(one.package, []).append(one)
        monkeypatch.setattr(facts, "records", lambda name: tuple(by_name.get(name, ())))
        monkeypatch.setattr(facts, "memory", {})
        return ask(pool, stack, **options)

    return asked
