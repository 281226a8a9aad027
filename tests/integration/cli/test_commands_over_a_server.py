"""Commands print the same whether they ask a server or open its database."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from serving import Server, start, wait_for_url, with_examples

from compatgate.kit import clock

Run = Callable[..., tuple[int, str, str]]
READS = [
    ["target", "list"],
    ["target", "list", "--label", "tier=prod", "--limit", "1"],
    ["target", "list", "--gpu", "L4", "--format", "json"],
    ["target", "show", "prod-a100"],
    ["target", "show", "prod-a100", "--format", "json"],
    ["target", "show", "prod-a10"],
    ["matrix", "list"],
    ["matrix", "list", "entries", "--component", "pytorch", "--format", "json"],
    ["matrix", "list", "waivers"],
    ["matrix", "list", "waivers", "--format", "json"],
    ["matrix", "list", "targets", "--search", "prod"],
    ["matrix", "show", "prod-a100"],
    ["matrix", "show", "tf215-cu122", "--kind", "entry", "--format", "json"],
    ["matrix", "show", "cand"],
    ["matrix", "show", "cand", "--format", "json"],
    ["matrix", "show", "nothing"],
    ["matrix", "export"],
    ["matrix", "export", "--at", "1", "--format", "json"],
    ["matrix", "export", "--at", "2999-01-01"],
    ["matrix", "export", "--at", "77"],
    ["matrix", "log"],
    ["matrix", "log", "--format", "json", "--limit", "1"],
    ["matrix", "log", "1"],
    ["matrix", "log", "2", "--format", "json"],
    ["matrix", "log", "--until", "2020-01-01"],
    ["matrix", "diff", "--from", "0"],
    ["matrix", "packages-report", "--since", "2026-01-01"],
    ["matrix", "packages-report", "--since", "2026-01-01", "--format", "json"],
    ["matrix", "packages-report", "--target", "prod-a10"],
    ["matrix", "diff", "--from", "1", "--to", "2", "--format", "json", "--exit-code"],
    ["token", "list"],
    ["token", "list", "--all", "--format", "json"],
    ["audit", "list"],
    ["audit", "list", "--action", "matrix.", "--format", "json"],
    ["audit", "decisions"],
    ["audit", "decisions", "--target", "prod-a100", "--format", "json", "--limit", "1"],
    ["audit", "decisions", "--verdict", "unknown", "--until", "2020-01-01"],
    ["audit", "verify"],
    ["audit", "verify", "--head", "0" * 64, "--format", "json"],
]
SOON = (clock.today() + timedelta(days=60)).isoformat()
ENTRY = """\
apiVersion: compatgate.dev/v1
kind: Entry
metadata: {{name: {name}}}
spec: {{targets: ['{target}'], components: {{cuda: "12.4.*"}}, status: candidate}}
"""
TARGET = """\
apiVersion: compatgate.dev/v1
kind: Target
metadata: {name: prod-a100}
spec: {pools: [{name: a, gpu: A100-SXM4-80GB, driver: 580.95.05}], policy: {mode: audit}}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("over-a-server")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    running = start(folder, with_examples(folder, []), False, {})
    wait_for_url(running)
    yield running
    running.kill()


@pytest.fixture
def run(command: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command line: exit status, output, errors."""
    for name in ("COMPATGATE_SERVER", "COMPATGATE_TOKEN", "COMPATGATE_DATABASE"):
        monkeypatch.delenv(name, raising=False)
    return command


@pytest.fixture
def remote(run: Run, server: Server) -> Run:
    """Run a command line on the server."""
    place = ("--server", f"http://{server.host}:{server.port}", "--token", server.token)
    return lambda *arguments: run(*arguments, *place)


@pytest.fixture
def local(run: Run, folder: Path, server: Server) -> Run:
    """Run a command line on the server's database."""
    return lambda *arguments: run(*arguments, "--database", str(folder / "gate.db"))


@pytest.fixture(scope="module")
def files(folder: Path) -> Path:
    """A folder with two files of documents: YAML, and JSON with tabs."""
    place = folder / "files"
    place.mkdir()
    (place / "a.yaml").write_text("# the first\n---\n" + ENTRY.format(name="cand", target="*"))
    waiver = {
        "apiVersion": "compatgate.dev/v1",
        "kind": "Waiver",
        "metadata": {"name": "w"},
        "spec": {
            "rules": ["CG803"],
            "targets": ["prod-a100"],
            "owner": "team-ü",
            "reason": "r",
            "expires": SOON,
            "match": {"everything": True},
        },
    }
    (place / "b.json").write_text(json.dumps([waiver], indent="\t"))
    return place


def test_files_are_imported_as_one_revision(remote: Run, local: Run, files: Path) -> None:
    planned = remote("matrix", "import", str(files), "--dry-run")
    assert planned == local("matrix", "import", str(files), "--dry-run")
    assert planned[1].endswith("dry run: 2 would change, 0 would not\n")
    status, out, _ = remote("matrix", "import", str(files), "--reason", "both")
    assert (status, out) == (
        0,
        "+ Entry cand\n+ Waiver w\nrevision 2: 2 changed, 0 unchanged\n",
    )
    same = remote("matrix", "import", str(files), "--format", "json")
    assert same == local("matrix", "import", str(files), "--format", "json")
    assert json.loads(same[1])["unchanged"] == 2
    _, log, _ = remote("matrix", "log", "2", "--format", "json")
    assert (json.loads(log)["author"], json.loads(log)["reason"]) == ("admin", "both")


def test_mistakes_are_told_by_file_and_line(
    remote: Run, local: Run, files: Path, tmp_path: Path
) -> None:
    (tmp_path / "a.yaml").write_text(ENTRY.format(name="one", target="nowhere"))
    twice = ENTRY.format(name="two", target="*")
    (tmp_path / "b.yml").write_text("%YAML 1.1\n---\n" + twice)
    (tmp_path / "c.yml").write_text("\n\n" + twice + "---\n" + ENTRY.format(name="x", target="*"))
    (tmp_path / "d.json").write_text('[{"kind": "Entri"}]')
    for form in ("text", "json"):
        found = remote("matrix", "import", str(tmp_path), "--format", form)
        assert found[0] == 2
        assert found == local("matrix", "import", str(tmp_path), "--format", form)
    (tmp_path / "e.yaml").write_text("kind: [")
    found = remote("matrix", "import", str(tmp_path))
    assert found[2].splitlines()[1].startswith(f"  {tmp_path}/e.yaml:2: not valid YAML")
    one = str(tmp_path / "e.yaml")
    (tmp_path / "e.yaml").write_text(f"{twice}---\n{twice}")
    assert remote("matrix", "import", one) == local("matrix", "import", one)


def test_files_are_compared_with_the_servers_matrix(remote: Run, local: Run, files: Path) -> None:
    remote("matrix", "import", str(files))
    differ = remote("matrix", "diff", str(files / "a.yaml"), "--exit-code")
    assert differ == local("matrix", "diff", str(files / "a.yaml"), "--exit-code")
    assert differ[0] == 1
    assert "- Waiver w" in differ[1]


@pytest.mark.parametrize("asked", READS, ids=" ".join)
def test_reading_prints_the_same(asked: list[str], remote: Run, local: Run, files: Path) -> None:
    remote("matrix", "import", str(files))
    remote(*asked)  # a verification seals what it found, once
    assert remote(*asked) == local(*asked)


def test_tokens_are_made_listed_and_ended(remote: Run, local: Run) -> None:
    made = remote("token", "create", "--name", "ci", "--scope", "read,gate", "--expires", "90d",
                  "--format", "json")  # fmt: skip
    token = json.loads(made[1])
    assert token["secret"].startswith("cg_")
    assert (token["created_by"], token["scopes"]) == ("admin", ["gate", "read"])
    assert remote("token", "create", "--name", "ci", "--scope", "read")[0] == 2
    lasting = remote("token", "create", "--name", "old", "--scope", "read", "--expires", "5000w")
    assert lasting[0] == 0, lasting[2]
    assert remote("token", "list") == local("token", "list")
    status, out, _ = remote("token", "revoke", "ci")
    assert (status, out.startswith(f"ci ({token['id']}) was revoked on ")) == (0, True)
    status, _, err = remote("token", "revoke", "ci", "--last-admin")
    assert (status, "--last-admin: does not work with --server" in err) == (2, True)
    assert remote("token", "list", "--all") == local("token", "list", "--all")


def test_tokens_are_limited_and_rotated(remote: Run, local: Run) -> None:
    made = remote("token", "create", "--name", "team", "--scope", "gate", "--target", "prod-*",
                  "--target", "lab", "--expires", "3d")  # fmt: skip
    assert made[0] == 0, made[2]
    status, out, err = remote("token", "rotate", "team", "--overlap", "24h")
    assert (status, out.startswith("cg_")) == (0, True), err
    assert out != made[1]
    listed = remote("token", "list")[1]
    assert "lab, prod-*" in listed
    assert "active, expires in 2 days" in listed
    assert remote("token", "list") == local("token", "list")
    for words, field in (
        (["rotate", "team", "--overlap", "soon"], "--overlap"),
        (["rotate", "team", "--overlap", "60d"], "overlap"),
        (["rotate", "nobody"], "token"),
        (["create", "--name", "x", "--scope", "gate", "--target", "a b"], "targets"),
        (["create", "--name", "x", "--scope", "admin", "--target", "a"], "targets"),
    ):
        status, _, err = remote("token", *words)
        assert (status, field in err) == (2, True), words


def test_two_people_approve_a_change(remote: Run, local: Run, tmp_path: Path) -> None:
    text = """apiVersion: compatgate.dev/v1
kind: Target
metadata: {name: two}
spec:
  pools: [{name: a, gpu: L4, driver: 550.54.15}]
  policy: {approvals: 2, mode: %s}
"""
    (tmp_path / "two.yaml").write_text(text % "enforce")
    (tmp_path / "laxer.yaml").write_text(text % "audit")
    assert remote("matrix", "import", str(tmp_path / "two.yaml"))[0] == 0
    status, _, err = remote("matrix", "import", str(tmp_path / "laxer.yaml"))
    assert (status, "requires two people" in err) == (2, True)
    (number,) = set(re.findall(r"pr_[0-9a-f]{16}", err))
    assert remote("matrix", "proposals") == local("matrix", "proposals")
    assert "+    mode: audit" in remote("matrix", "show", number)[1]
    status, _, err = remote("matrix", "approve", number)
    assert (status, "another person approves it" in err) == (2, True)
    status, _, err = local("matrix", "approve", number, "--author", "bob")
    assert (status, "+    mode: audit" in err) == (2, True)
    digest = re.findall(r"--digest ([0-9a-f]{64})", err)[0]
    assert digest in remote("matrix", "show", number)[1]
    status, out, err = local("matrix", "approve", number, "--author", "bob", "--digest", digest)
    assert (status, f"{number} was approved by bob: revision " in out) == (0, True), err
    assert "mode: audit" in remote("matrix", "show", "two")[1]
    assert number not in remote("matrix", "proposals")[1]
    assert "bob" in remote("matrix", "proposals", "--all")[1]


def test_a_change_is_proposed_merged_and_reverted(remote: Run, local: Run, tmp_path: Path) -> None:
    text = """apiVersion: compatgate.dev/v1
kind: Target
metadata: {name: slow}
spec:
  pools: [{name: a, gpu: L4, driver: 550.54.15}]
  policy: {changes: proposals}
"""
    (tmp_path / "slow.yaml").write_text(text)
    status, out, err = remote("matrix", "propose", str(tmp_path / "slow.yaml"))
    assert (status, "add target slow, pool a with L4 and driver 550.54.15" in out) == (0, True), err
    (number,) = set(re.findall(r"pr_[0-9a-f]{16}", out))
    assert remote("matrix", "merge", number)[0] == 2
    (digest,) = set(re.findall(r"--digest ([0-9a-f]{64})", out))
    assert remote("matrix", "merge", number, "--digest", digest)[0] == 0
    newer = ("--target", "slow", "--pool", "a", "--set", "driver=580.95.05")
    made = json.loads(remote("matrix", "propose", *newer, "--format", "json")[1])
    number = made["id"]
    assert number in local("matrix", "proposals", "--target", "slow")[1]
    read = ("--digest", made["digest"])
    status, out, err = local("matrix", "approve", number, "--author", "bob", *read)
    ready = f"ready: compatgate matrix merge {number} --digest {made['digest']}"
    assert (status, out.splitlines()) == (0, [f"{number} was approved by bob", ready]), err
    shown = local("matrix", "show", number)[1]
    assert "+    driver: 580.95.05" in shown
    assert "bob approved" in shown
    assert local("matrix", "retract", number, "--author", "bob")[0] == 0
    status, out, err = remote("matrix", "merge", number, "--digest", made["digest"])
    assert (status, "was merged by" in out) == (0, True), err
    revision = out.rpartition(" ")[2].strip()
    status, _, err = remote("matrix", "revert", revision, "--reason", "jobs hang")
    assert (status, "requires a proposal" in err) == (2, True)
    (number,) = set(re.findall(r"pr_[0-9a-f]{16}", err))
    assert "was closed by" in remote("matrix", "close", number, "-m", "it was the fan")[1]
    assert number in remote("matrix", "proposals", "--all")[1]
    assert "no proposals" in remote("matrix", "proposals", "--target", "slow")[1]
    for words, field in (
        (["--set", "driver=1"], "--set"),
        (["--target", "slow"], "--target"),
        (["--delete", "pool/x"], "--delete"),
        ([], "documents"),
    ):
        status, _, err = remote("matrix", "propose", *words)
        assert (status, field in err) == (2, True), words
    gone = json.loads(remote("matrix", "propose", "--delete", "target/slow", "--format", "json")[1])
    assert remote("matrix", "merge", gone["id"], "--digest", gone["digest"])[0] == 0


def test_who_operates_changes_no_target(
    remote: Run, run: Run, server: Server, tmp_path: Path
) -> None:
    asked = ("--name", "night", "--scope", "read,operate", "--format", "json")
    token = json.loads(remote("token", "create", *asked)[1])["secret"]
    place = ("--server", f"http://{server.host}:{server.port}", "--token", token)
    (tmp_path / "t.yaml").write_text(TARGET)
    for change in (
        ["target", "delete", "prod-a100"],
        ["matrix", "delete", "prod-a100", "--reason", "r"],
        ["matrix", "import", str(tmp_path / "t.yaml")],
    ):
        status, out, err = run(*change, *place)
        assert (status, out) == (2, "")
        assert "the token night lacks the scope bless" in err
        assert "compatgate token create --name NAME --scope bless" in err
    assert run("target", "show", "prod-a100", *place)[0] == 0


def test_a_target_is_deleted(remote: Run, server: Server) -> None:
    target = {"metadata": {"name": "lab"}, "reason": "r"}
    spec = {"pools": [{"name": "l4", "gpu": "L4", "driver": "550.54.15"}]}
    server.ask("POST", "/api/v1/targets", {**target, "spec": spec}, server.bearer)
    refused = remote("target", "delete", "prod-a100")
    assert refused[0] == 2
    assert "is still used by" in refused[2]
    status, out, _ = remote("target", "delete", "lab", "--format", "json")
    assert (status, json.loads(out)["deleted"]) == (0, True)


def test_an_entry_is_deleted_and_what_was_said_before_is_still_known(
    remote: Run, local: Run
) -> None:
    asked = ("check", "--target", "prod-a100", "--stack", "cuda=12.4,cudnn=9.1.0,torch=2.4.1+cu124")
    assert local(*asked)[0] == 0
    assert "warn     yes      prod-a100  " in remote("audit", "decisions")[1]
    before = max(
        row["number"] for row in json.loads(remote("matrix", "log", "--format", "json")[1])
    )
    status, out, err = remote("matrix", "delete", "torch24-cu124", "--reason", "broken")
    assert (status, out) == (0, f"- Entry torch24-cu124\nrevision {before + 1}: 1 deleted\n"), err
    assert local(*asked)[0] == 1
    count = len(json.loads(remote("audit", "decisions", "--format", "json")[1]))
    for run in (local, remote):
        for at, status in ((str(before), 0), (str(before + 1), 1), ("2999-01-01", 1)):
            assert run(*asked, "--at", at)[0] == status, at
        assert "does not exist" in run(*asked, "--at", "2020-01-01")[2]
        assert "revision 99 does not exist" in run(*asked, "--at", "99")[2]
        assert "'soon' is not a time (a revision's number" in run(*asked, "--at", "soon")[2]
    assert len(json.loads(remote("audit", "decisions", "--format", "json")[1])) == count


def test_a_name_of_several_documents_is_deleted_by_kind(remote: Run, folder: Path) -> None:
    twins = folder / "twins.yaml"
    document = "apiVersion: compatgate.dev/v1\nkind: {}\nmetadata: {{name: twin}}\nspec: {}\n"
    target = "{pools: [{name: l4, gpu: L4, driver: 550.54.15}]}"
    entry = "{targets: ['*'], components: {cuda: 12.4.*}, status: candidate}"
    twins.write_text(document.format("Target", target) + "---\n" + document.format("Entry", entry))
    assert remote("matrix", "import", str(twins))[0] == 0
    status, _, err = remote("matrix", "delete", "twin")
    assert (status, "Entry and Target (choose one with --kind)" in err) == (2, True), err
    assert remote("matrix", "delete", "twin", "--kind", "entry")[0] == 0
    assert remote("matrix", "delete", "twin", "--format", "json")[0] == 0


def test_only_a_target_has_an_older_matrix(run: Run) -> None:
    described = ("check", "--pool", "driver=550.54.15,gpu=L4", "--stack", "cuda=12.4", "--at", "1")
    status, _, err = run(*described)
    assert (status, "facts have no history" in err) == (2, True)


def test_a_server_takes_no_author(remote: Run) -> None:
    status, _, err = remote("target", "delete", "lab", "--author", "me")
    assert (status, "--author" in err) == (2, True)


def test_a_change_without_a_token_is_refused_with_what_to_do(run: Run, server: Server) -> None:
    place = ("--server", f"http://{server.host}:{server.port}")
    assert run("target", "list", *place)[0] == 0
    status, _, err = run("target", "delete", "dev-rtx", *place)
    assert (status, "COMPATGATE_TOKEN" in err) == (2, True)


def test_the_environment_names_the_server_unless_a_database_is_named(
    run: Run, server: Server, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMPATGATE_SERVER", f"http://{server.host}:{server.port}")
    monkeypatch.setenv("COMPATGATE_TOKEN", server.token)
    assert "admin" in run("token", "list")[1]
    monkeypatch.setenv("COMPATGATE_SERVER", "http://127.0.0.1:9")
    assert run("token", "list", "--database", str(folder / "gate.db"))[0] == 0
    both: Any = run("token", "list", "--server", "http://x", "--database", "y")
    assert (both[0], "cannot be used together" in both[2]) == (2, True)


def test_the_example_matrix_is_printed_and_can_be_imported(run: Run, tmp_path: Path) -> None:
    status, out, _ = run("matrix", "example")
    assert status == 0
    (tmp_path / "matrix.yaml").write_text(out)
    place = ("--database", str(tmp_path / "own.db"))
    status, out, _ = run("matrix", "import", str(tmp_path / "matrix.yaml"), *place)
    assert (status, "+ Target prod-a100\n" in out) == (0, True)


def test_a_waiver_that_has_ended_is_imported_with_a_note(
    run: Run, files: Path, tmp_path: Path
) -> None:
    ended = (files / "b.json").read_text().replace(SOON, "2020-01-31").replace("prod-a100", "*")
    (tmp_path / "w.json").write_text(ended)
    place = ("--database", str(tmp_path / "own.db"))
    status, _, err = run("matrix", "import", str(tmp_path / "w.json"), *place)
    assert (status, err) == (0, "note: Waiver w ended on 2020-01-31: it waives nothing\n")
