"""``hosts.toml`` is read whole or refused with every mistake."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from compatgate.canary.hosts import Host, MaintenanceWindow, Slurm, Tls
from compatgate.canary.hosts_file import read_hosts
from compatgate.errors import ManyProblems, NotFound

FLEET_PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "fleet.md"


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
        quiet=(MaintenanceWindow("22:00", "06:00", ("mon", "fri"), "Europe/Berlin"),),
    )


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            'executor = "process"\nbuild_network = true',
            "the process executor does not build images",
        ),
        ('endpoint = "http://x"', "host[0].endpoint: 'http://x' is not an engine's address"),
        ('endpoint = "tcp://stage:2375"', "without TLS lets anybody on the network"),
        ('endpoint = "tcp://stage"', "must name a host and a port"),
        ('endpoint = "tcp://stage:99999"', "must name a host and a port"),
        ('tls = {ca = "a", cert = "b", key = "c"}', "needs an endpoint on TCP"),
        ('endpoint = "tcp://s:1"\ntls = {ca = "a", cert = "b", key = "c"}', "does not exist"),
        ('executor = "lsf"', "'lsf' is not known (one of docker, kubernetes, process, slurm)"),
        ('executor = "process"\nendpoint = "unix:///x"', "the process executor has no engine"),
        ('executor = "process"\ndevices = "cdi"', "does not request GPUs"),
        ('driver = "535.183.01"', "is set but the host has no gpu"),
        ("slots = 0", "must be at least 1"),
        ("gpus = 1", "unknown key (did you mean gpu?)"),
        ('quiet = [{start = "8:00", end = "9:00"}]', "'8:00' is not a time of day"),
        ('quiet = [{start = "08:00", end = "08:00"}]', "must differ from start"),
        ('quiet = [{start = "08:00", end = "09:00", timezone = "CEST+5"}]', "not a time zone"),
        ('quiet = [{start = "08:00", end = "09:00", days = ["Mon"]}]', "'Mon' is not known"),
        ('[[host]]\nname = "a"', "another host is already named a"),
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
    with pytest.raises(NotFound) as error:
        read_hosts(tmp_path / "hosts.toml")
    assert error.value.field == "--hosts"
    with pytest.raises(ManyProblems, match="host is missing"):
        _read(tmp_path, "")


SLURM = """
[[host]]
name = "hpc"
executor = "slurm"
gpu = "A100-SXM4-80GB"
[host.slurm]
work = "/shared/compatgate"
gres = "gpu:a100"
"""


def test_a_slurm_host_is_read_and_nobody_looks_at_its_health(tmp_path: Path) -> None:
    (host,) = _read(tmp_path, SLURM)
    assert host.health == "none"
    assert host.slurm == Slurm("/shared/compatgate", gres="gpu:a100")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('extra = ["--wrap=id"]', "is not an allowed option (allowed options: "),
        ('extra = ["--uid=0"]', "host[0].slurm.extra"),
        ('extra = ["; id"]', "host[0].slurm.extra"),
        ('partition = "gpu --uid=0"', "host[0].slurm.partition"),
        ('container = "wrapper"', "names no {image} (an argument vector with {image}"),
        (
            'container = "oci"',
            'slurm.bundle: is missing (set a path such as "/shared/bundles/{digest}")',
        ),
        ('wrapper = ["{image}"]', 'needs container = "wrapper"'),
        ("poll = 0.0", "host[0].slurm.poll"),
        ('constraint = "$(id)"', "host[0].slurm.constraint"),
    ],
)
def test_what_makes_no_sense_for_slurm_is_named(tmp_path: Path, line: str, said: str) -> None:
    with pytest.raises(ManyProblems) as error:
        _read(tmp_path, SLURM + line + "\n")
    assert said in error.value.detail


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('gres = "gpu:a100"', "", "slurm.gres: is missing, so Slurm would allocate no GPU"),
        ('gpu = "A100-SXM4-80GB"', "", "slurm.gres: 'gpu:a100' is set but the host has no gpu"),
        ('executor = "slurm"', "", "is not a table of the docker executor"),
        (
            'gpu = "A',
            'health = "local"\ngpu = "A',
            "the GPUs are on the nodes, not on this machine",
        ),
        ('gpu = "A', 'endpoint = "ssh://x"\ngpu = "A', "the slurm executor has no engine"),
        ("/shared/compatgate", "/shared:/etc", "host[0].slurm.work"),
        ('[host.slurm]\nwork = "/shared/compatgate"\ngres = "gpu:a100"', "", "slurm: is missing"),
    ],
)
def test_a_slurm_host_is_whole(tmp_path: Path, old: str, new: str, said: str) -> None:
    with pytest.raises(ManyProblems) as error:
        _read(tmp_path, SLURM.replace(old, new, 1))
    assert said in error.value.detail


def test_the_example_of_the_documentation_is_read(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs/how-to/slurm.md").read_text()
    examples = [block.split("```")[0] for block in page.split("```toml\n")[1:]]
    hosts = [host for text in examples for host in _read(tmp_path, text)]
    assert {host.slurm.container for host in hosts if host.slurm} == {"pyxis", "wrapper", "oci"}


def test_each_node_of_a_cluster_can_be_a_host(tmp_path: Path) -> None:
    slurm, kubernetes = (
        f'[[host]]\nname = "{name}"\nexecutor = "{name}"\neach_node = ["n1", "n2.example"]\n'
        f"slots = 8\n[host.{name}]\n{least}\n"
        for name, least in (("slurm", 'work = "/w"\nextra = ["--nice=1"]'),
                            ("kubernetes", 'namespace = "c"\nnode_selector = {pool = "a"}'))
    )  # fmt: skip
    hosts = _read(tmp_path, slurm + kubernetes)
    assert [host.name for host in hosts] == [
        "slurm.n1", "slurm.n2.example", "kubernetes.n1", "kubernetes.n2.example",
    ]  # fmt: skip
    assert all(host.slots == 8 for host in hosts)
    assert hosts[1].slurm is not None
    assert hosts[1].slurm.extra == ("--nice=1", "--nodelist=n2.example")
    assert hosts[2].kubernetes is not None
    assert hosts[2].kubernetes.node_selector == {"pool": "a", "kubernetes.io/hostname": "n1"}
    (example,) = re.findall(r"```toml\n(.*?)```", FLEET_PAGE.read_text(), re.DOTALL)
    assert [host.name for host in _read(tmp_path, example)][-1] == "hpc-a100.gpu-004"
    twice = slurm.replace("n2.example", "n1").replace("--nice=1", "--nodelist=n7")
    local = '[[host]]\nname = "slurm.n2"\neach_node = ["n1"]\n'
    with pytest.raises(ManyProblems) as caught:
        _read(tmp_path, f"{twice}{local}")
    for said in (
        "host[0].each_node[1]: the node n1 is named twice",
        "host[0].each_node: cannot be set together with --nodelist in extra",
        "host[1].each_node: a docker host is one machine",
    ):
        assert said in caught.value.detail
