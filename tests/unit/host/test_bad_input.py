"""TESTS: each bad input of docs/errors.md as a person types it: one sentence, one cure, one exit code."""

from __future__ import annotations

import json
import os
import socket
import sqlite3
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import libvirt
import pytest
import synthetic_run
from driver_guest import UUID, XML
from loopback import until

from labkit import (
    advice,
    cli,
    config,
    doctor,
    estimate,
    fingerprint,
    guest,
    host,
    images,
    lock,
    plan,
    playbooks,
    state,
    status,
)
from labkit.config import REPO
from labkit.errors import EVIDENCE, NOT_READY, UNREACHABLE, USAGE, LabError
from labkit.gateway import pidfile, process
from labkit.gateway.config import GatewayConfig

ENSURE_LIBVIRT = host.ensure_libvirt

RUN_ID = "20261129-201202-b0dd88"
PAID = {"run_provider": "paid", "run_model": "test/model"}


@pytest.fixture(autouse=True)
def this_machine(monkeypatch, tmp_path, lab):
    """Nobody becomes root, and libvirt's test driver stands in for the machine's own."""
    monkeypatch.setattr(host, "become_root", lambda _lab, _why: None)
    monkeypatch.setattr(host, "ensure_libvirt", lambda: False)
    monkeypatch.setattr(guest.Hypervisor.__init__, "__defaults__", ("test:///default",))
    monkeypatch.setenv("LAB_INVENTORY", str(lab.inventory))
    monkeypatch.setenv("LAB_RUNS", str(tmp_path / "runs"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def typed(monkeypatch, capsys):
    """Types `lab WORDS`; returns the two lines that were said, after checking form and exit code."""

    def run(*words: str, code: int) -> str:
        monkeypatch.setattr("sys.argv", ["lab", *words])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        printed = capsys.readouterr()
        assert ended.value.code == code, printed.err
        what, cure = printed.err.splitlines()[-2:]
        assert what.startswith("lab: ") and cure.startswith("     ") and cure.strip()
        assert printed.out == "" and "Traceback" not in printed.err
        return f"{what}\n{cure}"

    return run


@pytest.fixture
def built(lab, with_manifest):
    """A lab with a verified snapshot of today's inventory."""
    with_manifest(lab, fingerprint=fingerprint.of(lab))
    return lab


@pytest.fixture
def defined(hypervisor):
    hypervisor.ensure_domain("unit", XML, UUID)
    return hypervisor


def test_without_the_libvirt_binding_the_sentence_says_so(typed, built, monkeypatch):
    monkeypatch.setitem(sys.modules, "libvirt", None)
    said = typed("revert", code=NOT_READY)
    assert "the libvirt binding is not installed" in said and "`./lab doctor`" in said


def starts_libvirt(monkeypatch, tmp_path, **programs: str) -> None:
    """A machine without systemd and with these programs alone, on which libvirt does not answer yet."""
    for name, text in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setattr(host, "ensure_libvirt", ENSURE_LIBVIRT)
    monkeypatch.setattr(host, "KVM", tmp_path / "no-kvm")
    monkeypatch.setattr(host, "SYSTEMD", tmp_path / "no-systemd")
    monkeypatch.setattr(host, "LIBVIRT_LOG", tmp_path / "log")
    monkeypatch.setattr(host, "START_SECONDS", 0.5)
    monkeypatch.setattr(guest.Hypervisor.__init__, "__defaults__", (f"test://{tmp_path}/not-yet.xml",))
    monkeypatch.setenv("PATH", str(tmp_path))


def test_libvirt_that_is_not_installed_is_said(typed, monkeypatch, tmp_path):
    starts_libvirt(monkeypatch, tmp_path)
    said = typed("revert", code=NOT_READY)
    assert "virtlogd is not installed" in said and "`./lab doctor` installs" in said


def test_libvirt_that_does_not_start_is_given_up_in_words(typed, monkeypatch, tmp_path):
    starts_libvirt(monkeypatch, tmp_path, virtlogd="exit 0", tini="exit 0")
    said = typed("revert", code=NOT_READY)
    assert "libvirt was started but does not answer" in said and "`libvirtd` run by hand" in said


def test_libvirts_log_service_that_fails_is_quoted(typed, monkeypatch, tmp_path):
    starts_libvirt(monkeypatch, tmp_path, virtlogd="echo cannot bind >&2; exit 1")
    assert "virtlogd --daemon failed: cannot bind" in typed("revert", code=NOT_READY)


@pytest.fixture
def refusing(monkeypatch):
    """A libvirt that is there and lets nobody in."""

    def refuse(_uri):
        error = libvirt.libvirtError("no")
        error.err = (libvirt.VIR_ERR_AUTH_FAILED, 0, "authentication failed", 2, "", None, None, -1, -1)
        raise error

    monkeypatch.setattr(libvirt, "open", refuse)


def test_libvirt_that_refuses_the_connection_is_not_started_again(typed, refusing, monkeypatch, tmp_path):
    starts_libvirt(monkeypatch, tmp_path, virtlogd="touch started")
    said = typed("revert", code=NOT_READY)
    assert "libvirt refuses the connection" in said and "libvirtd.conf" in said
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize("how", ["nobody listens", "hangs up"])
def test_libvirt_that_is_stopped_or_hangs_up_is_said(typed, built, monkeypatch, tmp_path, how):
    path = tmp_path / "libvirt-sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        if how == "hangs up":
            server.listen()
            threading.Thread(target=lambda: server.accept()[0].close(), daemon=True).start()
        monkeypatch.setattr(
            guest.Hypervisor.__init__, "__defaults__", (f"qemu+unix:///system?mode=direct&socket={path}",)
        )
        said = typed("revert", code=NOT_READY)
    assert "libvirt does not answer at qemu+unix" in said and "`lab doctor`" in said


def test_a_disk_too_short_for_a_build_is_said_with_the_numbers(typed, monkeypatch):
    monkeypatch.setattr(images, "BUILD_NEEDS_GB", 1e9)
    said = typed("up", code=NOT_READY)
    assert "GiB are free at" in said and "building a guest takes about" in said and "lab_state_dir" in said


@pytest.mark.parametrize("how", ["missing", "no certificate"])
def test_certificates_that_cannot_be_read_end_a_build_before_it_begins(typed, inventory, tmp_path, how):
    bundle = tmp_path / "bundle.pem"
    if how != "missing":
        bundle.write_text("not one")
    inventory(guest={"lab_host_ca_bundle": str(bundle)})
    said = typed("up", code=NOT_READY)
    assert "lab_host_ca_bundle" in said and str(bundle) in said and "leave it empty" in said


def test_a_disk_too_short_for_a_run_is_said_with_the_numbers(typed, built, monkeypatch):
    monkeypatch.setattr(estimate, "DISK_BASE_GB", 1e9)
    said = typed("run", "--model", "rehearsal", "--minutes", "5", code=NOT_READY)
    assert "GiB are free at" in said and "the run may write" in said and "--minutes" in said


@pytest.mark.parametrize("how", ["changed", "gone"])
def test_a_cached_image_with_a_wrong_sum_is_named_with_the_way_out(typed, lab, how):
    folder = lab.images_dir / "debian-12-0123456789abcdef"
    folder.mkdir(parents=True)
    (folder / "disk.qcow2").write_text("as it was made")
    sums = subprocess.run(["sha256sum", "disk.qcow2"], cwd=folder, capture_output=True, text=True, check=True)
    (folder / "SHA256SUMS").write_text(sums.stdout)
    if how == "changed":
        (folder / "disk.qcow2").write_text("one byte less")
    else:
        (folder / "disk.qcow2").unlink()
    said = typed("up", code=EVIDENCE)
    assert f"{folder} is damaged: disk.qcow2 is not what SHA256SUMS says" in said and "sudo mv" in said


def test_a_download_that_was_cut_leaves_no_image_and_its_own_words(tmp_path):
    script = "while read -r line; do :; done; mkdir -p $root; echo 'E: Failed to fetch: cut' >&2; exit 100"
    (tmp_path / "mmdebstrap").write_text(f"#!/bin/sh\nroot={tmp_path}/made\n{script}\n")
    (tmp_path / "mmdebstrap").chmod(0o755)
    target = tmp_path / "images/debian-12-x"
    bootstrap = REPO / "roles/image/files/bootstrap-debian"
    done = subprocess.run(
        [bootstrap, target, "bookworm", "6", "1", "http://mirror.invalid/debian", "one"],
        env={**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 100 and "Failed to fetch: cut" in done.stderr
    assert list(target.parent.iterdir()) == []
    failed = playbooks._failure("up", [("runner_on_failed", "Bootstrap", {"stderr": done.stderr})], "")
    assert "Bootstrap: E: Failed to fetch: cut" in failed.message and failed.code == NOT_READY


@pytest.mark.parametrize("verb", [["revert"], ["run", "--model", "rehearsal"], ["up", "--converge"]])
def test_without_a_snapshot_the_sentence_says_what_takes_one(typed, verb):
    said = typed(*verb, code=NOT_READY)
    assert "the guest 'unit' has no snapshot" in said and "`lab up`" in said


def test_a_snapshot_older_than_the_inventory_starts_no_run(typed, lab, with_manifest):
    with_manifest(lab, fingerprint="e" * 64)
    said = typed("run", "--model", "rehearsal", code=NOT_READY)
    assert "is older than the inventory or the roles" in said and "`lab up --check`" in said


@pytest.fixture
def keys(lab):
    lab.keys_dir.mkdir(parents=True)
    (lab.keys_dir / "id_ed25519").touch()


def test_a_guest_that_is_off_cannot_be_reached(typed, keys, defined):
    said = typed("ssh", code=UNREACHABLE)
    assert "the guest 'unit' is off: no shell opens in it" in said and "start unit" in said


class PausedByAnError:
    """What libvirt says of a guest whose QEMU could not write."""

    def state(self) -> list[int]:
        return [libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_IOERROR]

    def UUIDString(self) -> str:
        return UUID

    def XMLDesc(self, _flags: int) -> str:  # noqa: N802  libvirt's name
        return "<domain/>"


def test_a_guest_paused_by_an_io_error_says_which_disk_to_look_at(typed, lab, keys, monkeypatch):
    monkeypatch.setattr(guest.Hypervisor, "domain", lambda _self, _name: PausedByAnError())
    said = typed("ssh", code=UNREACHABLE)
    assert "is paused by an I/O error of this host" in said
    assert f"df -h {lab.state_dir}" in said and "resume unit" in said
    known = status.describe(lab)
    assert known["io_error"] and "paused by an I/O error" in advice.sentence(known)
    assert "df -h" in advice.sentence(known).splitlines()[-1]


def test_a_taken_port_and_a_missing_address_end_a_start_with_exit_code_3(tmp_path, free_port):
    def start(address: str) -> LabError:
        with pytest.raises(LabError) as caught:
            process.start(tmp_path / "run", gateway(address, free_port))
        return caught.value

    with socket.socket() as holder:
        holder.bind(("127.0.0.1", free_port))
        holder.listen()
        taken = start("127.0.0.1")
    missing = start("192.0.2.1")
    assert f"port {free_port} on 127.0.0.1 is already in use" in taken.message
    assert "no address 192.0.2.1" in missing.message and taken.code == missing.code == NOT_READY


def gateway(bind: str, port: int) -> GatewayConfig:
    return GatewayConfig(
        run_id=RUN_ID, bind=bind, port=port, provider="rehearsal", base_url="", key_env="",
        models=("rehearsal",), token_sha256="0" * 64, budget_usd=1.0, price_input_per_mtok=0.1,
        price_output_per_mtok=0.2, max_completion_tokens=1000, minutes=3,
    )  # fmt: skip


def test_doctor_that_finds_a_taken_address_ends_with_exit_code_3(lab, monkeypatch, tmp_path, capsys):
    address = f"2: eth0    inet {lab.guest['lab_network_cidr'].replace('.0/', '.7/')} scope global eth0"
    (tmp_path / "ip").write_text(f"#!/bin/sh\necho '{address}'\n")
    (tmp_path / "ip").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(doctor, "CHECKS", {"network": doctor.CHECKS["network"]})
    monkeypatch.setattr("sys.argv", ["lab", "doctor", "--json"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    (finding,) = json.loads(capsys.readouterr().out)
    assert ended.value.code == NOT_READY and "is in use on eth0" in finding["detail"]
    assert finding["state"] == "fail" and "lab_network_cidr" in finding["cure"]


def test_a_domain_that_is_not_ours_is_left_alone(typed, lab, defined):
    state.update(lab.dir, run=RUN_ID, made={"domain": "another"})
    said = typed("collect", code=NOT_READY)
    assert "a libvirt domain named 'unit' exists and is not this lab's" in said and "lab_name" in said
    assert defined.domain("unit").UUIDString() == UUID


@pytest.fixture
def provider():
    """A provider on a loopback port that refuses with `status` and `said`."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            body = json.dumps({"error": {"message": self.server.said}}).encode()
            self.send_response(self.server.status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def paid(make_lab, with_manifest, provider, monkeypatch, tmp_path):
    """A lab whose runs go to that provider, with a snapshot."""
    url = f"http://127.0.0.1:{provider.server_port}/v1"
    ours = {"paid": {"base_url": url, "key_env": "LAB_UNIT_KEY"}}
    lab = make_lab(run={**PAID, "run_providers": ours})
    with_manifest(lab, fingerprint=fingerprint.of(lab))
    monkeypatch.setenv("LAB_UNIT_KEY", "sk-canary-7d1b0c5f2e")
    monkeypatch.setattr(plan, "caller_home", lambda: tmp_path)
    return lab


def test_a_missing_key_ends_a_run_before_anything_starts(typed, paid, monkeypatch):
    monkeypatch.delenv("LAB_UNIT_KEY")
    said = typed("run", code=NOT_READY)
    assert "no key for provider paid: LAB_UNIT_KEY is not set" in said and "chmod 600" in said


@pytest.mark.parametrize(
    ("status_code", "words", "sentence", "cure"),
    [
        (401, "No auth", "does not take the key (401)", "LAB_UNIT_KEY"),
        (402, "Insufficient credits", "the account is out of credit (402)", "add credit"),
        (404, "No such model", "does not take the model test/model (404)", "--model"),
    ],
    ids=["wrong key", "no credit", "unknown model"],
)
def test_what_the_provider_refuses_ends_a_run_before_anything_starts(
    typed, paid, provider, status_code, words, sentence, cure
):
    provider.status, provider.said = status_code, words
    said = typed("run", "--minutes", "5", code=NOT_READY)
    assert sentence in said and cure in said and "canary" not in said
    assert not paid.gateway_dir.exists() and state.read(paid.dir).get("run") is None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--minutes", "0"), "--minutes 0.0 is not between 1 and 2880"),
        (("--minutes", "1e9"), "--minutes"),
        (("--minutes", "nan"), "--minutes nan"),
        (("--budget", "-1"), "--budget -1.0 is not between 0.01 and 10000"),
        (("--budget", "inf"), "--budget inf"),
    ],
)
def test_nonsense_minutes_and_budgets_are_refused_first_of_all(typed, words, said):
    assert said in typed("run", *words, code=USAGE)


def in_the_guest(lab, alive: bool) -> None:
    folder = lab.gateway_dir / RUN_ID
    folder.mkdir(parents=True)
    (folder / "events.jsonl").write_text('{"id": 1, "event_type": "RUN_STARTED"}\n')
    if alive:
        pidfile.write(folder)  # this process passes for the gateway
    state.update(lab.dir, run=RUN_ID, collected=False)


@pytest.mark.parametrize("verb", [["run", "--model", "rehearsal"], ["revert"], ["up", "--converge"]])
def test_a_session_that_runs_is_not_disturbed_by_a_second_verb(typed, built, verb):
    in_the_guest(built, alive=True)
    said = typed(*verb, code=NOT_READY)
    assert f"run {RUN_ID} is in the guest 'unit'" in said and "its session is still running" in said
    assert "`lab watch`" in said and "`lab finish`" in said


def test_a_command_that_is_at_work_keeps_a_second_one_out(typed, built):
    with lock.hold(built.state_dir, "unit", "run"):
        said = typed("run", "--model", "rehearsal", code=NOT_READY)
    assert f"`lab run` (process {os.getpid()}, since " in said and "is at work on the lab 'unit'" in said


@pytest.mark.parametrize("verb", [["revert"], ["run", "--model", "rehearsal"]])
def test_a_run_that_nobody_collected_is_not_reverted_away(typed, built, verb):
    in_the_guest(built, alive=False)
    said = typed(*verb, code=NOT_READY)
    assert f"run {RUN_ID}" in said and "was not collected" in said
    assert "`lab run --resume last`" in said and "`lab collect --stop`" in said  # plain collect may refuse
    assert "--discard" in said and state.read(built.dir)["run"] == RUN_ID


def test_a_damaged_record_is_named_with_its_second_copy(typed, tmp_path):
    folder, _ = synthetic_run.build(tmp_path / "runs", steps=2)
    content = (folder / "run.db").read_bytes()
    (folder / "run.db").chmod(0o600)
    (folder / "run.db").write_bytes(content[: len(content) // 3])
    said = typed("query", "event_types", code=EVIDENCE)
    assert f"{folder / 'run.db'} is damaged" in said and "mirror.db" in said


def test_a_record_of_another_version_is_named_with_what_it_lacks(typed, tmp_path):
    folder, _ = synthetic_run.build(tmp_path / "runs", steps=2)
    with sqlite3.connect(folder / "run.db") as database:
        database.execute("ALTER TABLE execution_logs RENAME COLUMN cost_usd TO dollars")
    said = typed("query", "event_types", code=EVIDENCE)
    assert "has no column cost_usd in execution_logs" in said and "another version" in said


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        (config.GUEST_FILE, "lab_memroy_mb: 1", "unknown variable lab_memroy_mb"),
        (config.RUN_FILE, "run_minuets: 1", "unknown variable run_minuets"),
    ],
)
def test_a_mistyped_variable_is_named_with_the_nearest_one(typed, lab, file, text, said):
    (lab.inventory / file).write_text(text)
    told = typed("status", code=USAGE)
    near = {"lab_memroy_mb": "lab_memory_mb", "run_minuets": "run_minutes"}[said.split()[-1]]
    assert said in told and f"did you mean {near}?" in told


def test_a_folder_without_a_gateways_settings_serves_nothing(typed, tmp_path):
    said = typed("gateway", str(tmp_path), code=USAGE)
    assert f"no gateway settings at {tmp_path}/gateway.json" in said and "`lab run`" in said


def test_the_verb_serves_a_run_and_ends_when_asked_even_before_it_listens(tmp_path, free_port):
    folder = tmp_path / "run"
    folder.mkdir()
    gateway("127.0.0.1", free_port).save(folder)
    command = [sys.executable, "-m", "labkit", "gateway", str(folder)]
    served = subprocess.Popen(command, cwd=REPO)
    try:
        until(lambda: process.alive(folder))
        assert pidfile.read(folder) == served.pid
        served.terminate()
        assert served.wait(60) == 0 and not process.alive(folder)
    finally:
        served.kill()
