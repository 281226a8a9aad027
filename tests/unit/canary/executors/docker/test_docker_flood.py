"""A log that breaks off: the program's doing after a flood, the engine's failure otherwise."""

import io
import struct
from types import SimpleNamespace

import pytest

from compatgate.canary.executors import docker
from compatgate.canary.protocol.jsonl import LOST_LINE
from compatgate.errors import InfrastructureError


class Api:
    """An engine whose log ends, perhaps within a frame, while the container still runs."""

    base_url, api_version = "http://engine", "1.41"

    def __init__(self, lines, cut, runs_on):
        self.raw = b"".join(struct.pack(">BxxxL", 1, len(line)) + line for line in lines) + cut
        self.runs_on = runs_on

    def inspect_container(self, container):
        self.runs_on -= 1
        state = "running" if self.runs_on > 0 else "exited"
        config = {"LogConfig": {"Config": {"max-size": "1000"}}}
        return {"HostConfig": config, "State": {"Status": state}}

    def get(self, url, **options):
        return SimpleNamespace(raw=io.BytesIO(self.raw), close=lambda: None)

    def _raise_for_status(self, response):
        pass


@pytest.mark.parametrize("cut", [b"", b"\1\0\0"])
def test_a_log_that_breaks_off_in_a_flood_is_read_to_the_containers_end(monkeypatch, cut):
    monkeypatch.setattr(docker, "_ENDING_S", 0.0)
    line = b"x" * 599 + b"\n"
    api = Api([line] * 3, cut, runs_on=5)
    assert b"".join(docker.follow_log(api, "c", lambda: False)).count(LOST_LINE) == 1
    assert api.runs_on <= 0, "it waited for the container"


def test_a_log_that_breaks_off_otherwise_is_the_engines_failure(monkeypatch):
    monkeypatch.setattr(docker, "_ENDING_S", 0.0)
    with pytest.raises(InfrastructureError):
        list(docker.follow_log(Api([b"few\n"], b"", runs_on=9), "c", lambda: False))
    with pytest.raises(EOFError):
        list(docker.follow_log(Api([b"few\n"], b"\1\0", runs_on=9), "c", lambda: False))
