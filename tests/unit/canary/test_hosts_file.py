"""``hosts.toml`` is read whole or refused with every mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from compatgate.canary.hosts import Host, Quiet, Tls
from compatgate.canary.hosts_file import read_hosts
from compatgate.errors import ManyProblems, NotFound


def _read(tmp_path: Path, text: str) -> list[Host]:
    file = tmp_path / "hosts.toml"
    file.write_text(text)
    return read_hosts(file)


def test_hosts_have_defaults_that_fit_a_local_engine(tmp_path: Path) -> None:
    assert _read(tmp_path, '[[host]]\nname = "a"\n') == [Host("a")]


def test_a_host_says_where_its_engine_is_what_it_has_and_when_it_rests(tmp_path: Path) -> None:
    for name in ("ca.pem", "cert.pem", "key.pem"):
        (tmp_path / name).touch()
    (host,) = _read(
        tmp_path,
        """
[[host]]
name = "stage-1"
endpoint = "tcp://stage-1:2376"
tls = {ca = "ca.pem", cert = "cert.pem", key = "key.pem"}
gpu = "A100-SXM4-80GB"
driver = "535.183.01"
slots = 8
[[host.quiet]]
days = ["mon", "fri"]
start = "22:00"
end = "06:00"
timezone = "Europe/Berlin"
""",
    )
    paths = (str(tmp_path / name) for name in ("ca.pem", "cert.pem", "key.pem"))
    assert host == Host(
        "stage-1",
        endpoint="tcp://stage-1:2376",
        tls=Tls(*paths),
        gpu="A100-SXM4-80GB",
        driver="535.183.01",
        slots=8,
        quiet=(Quiet("22:00", "06:00", ("mon", "fri"), "Europe/Berlin"),),
    )


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('endpoint = "http://x"', "host[0].endpoint: 'http://x' is not an engine's address"),
        ('endpoint = "tcp://stage:2375"', "without TLS gives its host to everybody"),
        ('endpoint = "tcp://stage"', "names no host and port"),
        ('endpoint = "tcp://stage:99999"', "names no host and port"),
        ('tls = {ca = "a", cert = "b", key = "c"}', "is for an endpoint on TCP"),
        ('endpoint = "tcp://s:1"\ntls = {ca = "a", cert = "b", key = "c"}', "there is no file"),
        ('executor = "slurm"', "'slurm' is not known (one of docker, process)"),
        ('executor = "process"\nendpoint = "unix:///x"', "the process executor has no engine"),
        ('executor = "process"\ndevices = "cdi"', "asks no engine for GPUs"),
        ('driver = "535.183.01"', "is stated without a gpu"),
        ("slots = 0", "must be at least 1"),
        ("gpus = 1", "unknown key (did you mean gpu?)"),
        ('quiet = [{start = "8:00", end = "9:00"}]', "'8:00' is not a time of day"),
        ('quiet = [{start = "08:00", end = "08:00"}]', "is the start"),
        ('quiet = [{start = "08:00", end = "09:00", timezone = "CEST+5"}]', "not a time zone"),
        ('quiet = [{start = "08:00", end = "09:00", days = ["Mon"]}]', "'Mon' is not known"),
        ('[[host]]\nname = "a"', "a is taken"),
    ],
)
def test_a_mistake_names_file_field_and_value(tmp_path: Path, line: str, said: str) -> None:
    with pytest.raises(ManyProblems) as error:
        _read(tmp_path, f'[[host]]\nname = "a"\n{line}\n')
    assert said in error.value.detail
    assert f"{tmp_path}/hosts.toml" in error.value.detail


def test_plain_tcp_on_the_loopback_address_is_nobody_elses(tmp_path: Path) -> None:
    (host,) = _read(tmp_path, '[[host]]\nname = "a"\nendpoint = "tcp://127.0.0.1:2375"\n')
    assert host.endpoint == "tcp://127.0.0.1:2375"


def test_a_file_that_is_not_there_or_has_no_host_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        read_hosts(tmp_path / "hosts.toml")
    with pytest.raises(ManyProblems, match="host is missing"):
        _read(tmp_path, "")
