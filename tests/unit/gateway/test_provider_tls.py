"""TESTS: the key goes to nobody for whom no authority vouches: a man in the middle, on loopback."""

from __future__ import annotations

import datetime
import ipaddress
import ssl

import pytest

x509 = pytest.importorskip("cryptography.x509")
hashes = pytest.importorskip("cryptography.hazmat.primitives.hashes")
serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization")
ec = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ec")

CANARY = "sk-canary-41b7e0aa5c1d"


@pytest.fixture
def impostor(upstream, tmp_path):
    """A provider that speaks https with a certificate of its own making, for the right address."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now, day = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=1)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(now - day).not_valid_after(now + day)
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = builder.add_extension(address, critical=False).sign(key, hashes.SHA256())
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)
    (tmp_path / "server.pem").write_bytes(private + made.public_bytes(pem))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem")
    upstream.secure(context)
    upstream.url = upstream.url.replace("http:", "https:")
    upstream.answers({"choices": []})
    return upstream


def test_a_provider_with_a_certificate_of_its_own_making_gets_neither_key_nor_prompt(
    run_gateway, impostor, monkeypatch
):
    monkeypatch.setenv("LAB_TEST_KEY", CANARY)
    running = run_gateway(provider="paid", base_url=impostor.url, key_env="LAB_TEST_KEY")
    assert running.chat().json()["error"]["code"] == "provider_unreachable"
    assert impostor.seen == [] and running.requests()[0]["charged_usd"] == 0
    assert CANARY.encode() not in running.everything_written()
