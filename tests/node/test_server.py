"""Addresses and certificates of a door: what can be had, and what is said of what cannot."""

import socket
import tempfile
from pathlib import Path

import pytest

from node.server import Tls, bind, closer, http_server, url_of
from registry.errors import TelaError
from tests.node.certificates import certificate


async def app(scope, receive, send):
    pass


def refusal(address):
    with pytest.raises(TelaError) as caught:
        bind(address)
    return caught.value


@pytest.mark.parametrize(
    "address",
    ["", "127.0.0.1", ":80", "127.0.0.1:", "127.0.0.1:http", "127.0.0.1:65536", "127.0.0.1:²", "127.0.0.1:-1"],
)
def test_what_is_no_address_is_refused_by_its_form(address):
    refused = refusal(address)
    assert (refused.code, "HOST:PORT or unix:PATH" in refused.message) == ("bad_address", True)


@pytest.mark.parametrize("address", ["203.0.113.1:0", "a..b:0", "[::zz]:0", f"{'x' * 70}:0"])
def test_an_address_that_is_not_this_host_s_is_refused_with_what_to_do(address):
    refused = refusal(address)
    assert (refused.code, address in refused.message) == ("bad_address", True)
    assert "of this host" in refused.hint


def test_a_port_that_is_taken_is_said_to_be():
    with bind("127.0.0.1:0") as taken:
        refused = refusal(url_of(taken).removeprefix("http://"))
    assert (refused.code, "another program" in refused.hint) == ("address_in_use", True)


def test_clients_wait_from_the_moment_an_address_is_had():
    with bind("127.0.0.1:0") as listening, socket.create_connection(listening.getsockname()):
        pass


@pytest.mark.parametrize(("address", "host"), [("127.0.0.1:0", "127.0.0.1"), ("[::1]:0", "[::1]")])
def test_a_url_says_how_and_where(address, host):
    with bind(address) as listening:
        port = listening.getsockname()[1]
        assert url_of(listening) == f"http://{host}:{port}"
        assert url_of(listening, is_tls=True) == f"https://{host}:{port}"


def test_a_unix_socket_says_its_path_and_is_gone_when_it_is_closed():
    with tempfile.TemporaryDirectory(prefix="t", dir="/tmp") as name:
        path = Path(name) / "door.sock"
        listening = bind(f"unix:{path}")
        close = closer(listening)
        assert url_of(listening) == url_of(listening, is_tls=True) == f"unix:{path}"
        close()
        assert not path.exists()
        assert listening.fileno() == -1


def test_a_socket_of_an_address_is_closed():
    listening = bind("127.0.0.1:0")
    closer(listening)()
    assert listening.fileno() == -1


# --- certificates


def tls_refusal(cert, key):
    with pytest.raises(TelaError) as caught:
        http_server(app, tls=Tls(str(cert), str(key)))
    assert caught.value.code == "tls"
    return caught.value


def test_a_certificate_and_its_key_are_taken(tmp_path):
    assert http_server(app, tls=Tls(*certificate(tmp_path)))


def test_a_file_that_cannot_be_read_is_named_with_its_flag(tmp_path):
    cert, key = certificate(tmp_path)
    missing = tmp_path / "none.pem"
    assert f"--tls-cert {missing}: No such file" in tls_refusal(missing, key).message
    assert f"--tls-key {missing}: No such file" in tls_refusal(cert, missing).message
    assert f"--tls-key {tmp_path}: Is a directory" in tls_refusal(cert, tmp_path).message


def test_files_that_do_not_go_together_are_both_named_and_nothing_of_them_is_shown(tmp_path):
    cert, key = certificate(tmp_path)
    other = certificate(tmp_path, "other")
    sealed = certificate(tmp_path, "sealed", passphrase=b"correct horse")
    empty, junk = tmp_path / "empty.pem", tmp_path / "junk.pem"
    empty.write_bytes(b"")
    junk.write_bytes(b"tela_sk_secret\0\xff")
    for one, two in [(cert, other.key), (key, cert), (empty, key), (cert, junk), (junk, junk), sealed]:
        refused = tls_refusal(one, two)
        assert str(one) in refused.message
        assert str(two) in refused.message
        assert "passphrase" in refused.hint
        assert "tela_sk_secret" not in str(refused)
        assert "_ssl.c" not in refused.message
