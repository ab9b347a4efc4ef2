"""Doors on real sockets: keys that live and end, TLS, proxies, unix sockets, readiness, and what never is logged."""

import asyncio
import logging
import os
import re
import socket
import ssl
import stat
import tempfile
from pathlib import Path

import aiohttp
import pytest

from accounting.claims import mint_claim
from accounting.keys import mint
from node.config import DoorConfig
from registry.errors import TelaError
from registry.kinds import Node
from registry.lifecycle import Rank
from tests.node.certificates import certificate
from tests.node.doors import doors

CLAIM, SECRET, OTHER = mint_claim(bytes(32)), mint(bytes(range(32))), mint(bytes(range(1, 33)))
SELF, REVOKE, MODELS = "/v1/keys/self", "/v1/keys/self/revoke", "/v1/models"


def through(tmp_path, script, count=1, **options):
    async def main():
        async with doors(tmp_path, count, **options) as opened:
            await script(opened)

    asyncio.run(main())


# --- the life of a key


def test_a_claimed_key_works_at_every_door_and_at_none_once_it_is_revoked(tmp_path):
    async def script(opened):
        opened.offer(claim=CLAIM, label="laptop", user="ada", project="p")
        status, claimed = await opened.claim(CLAIM, SECRET)
        assert (status, claimed["id"], claimed["label"]) == (200, "k_1", "laptop")
        assert claimed["base_url"] == f"{opened.urls[0]}/v1"
        assert claimed["models"] == []
        for at in (0, 1):
            _, about = await opened.until("GET", SELF, 200, at=at, key=SECRET)
            assert (about["id"], about["user"], about["project"], about["models"]) == ("k_1", "ada", "p", None)
        assert await opened.ask("POST", REVOKE, key=SECRET, json={"reason": "lost"}) == (
            200, {"id": "k_1", "revoked": True},
        )  # fmt: skip
        assert (await opened.ask("GET", SELF, key=SECRET))[0] == 401
        await opened.until("GET", SELF, 401, at=1, key=SECRET, within=5.0)
        assert (await opened.claim(CLAIM, SECRET))[0] == 403

    through(tmp_path, script, count=2)


def test_a_lost_answer_is_asked_for_again_and_nobody_else_gets_the_key(tmp_path):
    async def script(opened):
        opened.offer(claim=CLAIM)
        first = await opened.claim(CLAIM, SECRET)
        assert first == await opened.claim(CLAIM, SECRET)
        assert (await opened.claim(CLAIM, OTHER))[0] == 403
        assert (await opened.ask("GET", SELF, key=OTHER))[0] == 401
        assert (await opened.ask("GET", SELF, key=SECRET))[0] == 200

    through(tmp_path, script)


def test_a_door_that_is_no_issuer_sends_the_claimer_to_one_that_is(tmp_path):
    async def script(opened):
        opened.offer(claim=CLAIM)
        status, refused = await opened.until(
            "POST", "/v1/keys/claim", 409, at=1, json={"claim": CLAIM, "digest": "ab" * 32}
        )
        assert (status, refused["error"]["code"]) == (409, "not_issuer")
        assert (await opened.claim(CLAIM, SECRET))[0] == 200
        await opened.until("GET", SELF, 200, at=1, key=SECRET)
        assert (await opened.ask("POST", REVOKE, at=1, key=SECRET))[0] == 409

    through(tmp_path, script, count=2)


def test_the_book_of_keys_is_made_again_when_keys_change_and_not_when_nodes_do(tmp_path):
    async def script(opened):
        node = opened.nodes[0]
        book = node.door.keys.book()
        version = node.replica.version
        body = Node(host="door0", member=node.proofs.member, roles=("ingress", "relay"), url="http://elsewhere")
        node.mesh.tell(lambda peer: peer.announce(body, Rank.SERVING))
        assert node.replica.version > version
        assert node.door.keys.book() is book
        opened.offer(secret=SECRET)
        assert node.door.keys.book() is not book
        assert (await opened.ask("GET", SELF, key=SECRET))[0] == 200

    through(tmp_path, script)


def test_many_keys_are_not_read_again_for_every_change_and_no_new_key_is_refused_for_it(tmp_path):
    async def script(opened):
        keys = opened.nodes[0].door.keys
        opened.offer(secret=SECRET)
        assert (await opened.ask("GET", SELF, key=SECRET))[0] == 200
        keys._held_until = float("inf")  # as with very many keys
        opened.revoke("k_1")
        assert (await opened.ask("GET", SELF, key=SECRET))[0] == 200  # for that while longer
        opened.offer("k_2", secret=OTHER)
        assert (await opened.ask("GET", SELF, key=OTHER))[0] == 200
        assert (await opened.ask("GET", SELF, key=SECRET))[0] == 401

    through(tmp_path, script)


def test_claims_are_counted_by_client_and_refused_before_their_body_is_read(tmp_path):
    async def script(opened):
        got = [(await opened.claim(CLAIM, SECRET))[0] for _ in range(12)]
        assert got == [403] * 10 + [429] * 2
        assert (await opened.ask("GET", SELF, key=opened.key))[0] == 200  # keys are not held up by it

    through(tmp_path, script)


# --- what is asked wrongly


@pytest.mark.parametrize(
    ("method", "path", "status", "allow"),
    [
        ("GET", "/v1/keys/claim", 405, "POST"),
        ("HEAD", "/v1/keys/claim", 405, "POST"),
        ("OPTIONS", "/v1/keys/claim", 405, "POST"),
        ("OPTIONS", "/v1/chat/completions", 405, "POST"),
        ("PUT", "/v1/keys/self", 405, "GET, HEAD"),
        ("GET", "/v1/keys/self/revoke", 405, "POST"),
        ("POST", "/readyz", 405, "GET, HEAD"),
        ("GET", "/v1/keys/", 404, None),
        ("GET", "/v1/keys/k_1", 404, None),
        ("POST", "/v1/keys/claim/now", 404, None),
        ("OPTIONS", "/", 404, None),
    ],
)
def test_what_is_not_there_is_refused_without_a_key_and_changes_nothing(tmp_path, method, path, status, allow):
    async def script(opened):
        async with opened.session.request(method, opened.urls[0] + path) as answer:
            assert (answer.status, answer.headers.get("allow")) == (status, allow)

    through(tmp_path, script)


def test_a_head_has_no_body(tmp_path):
    async def script(opened):
        assert await opened.ask("HEAD", SELF, key=opened.key) == (200, None)
        assert await opened.ask("HEAD", SELF) == (401, None)
        assert (await opened.ask("HEAD", "/readyz"))[1] is None

    through(tmp_path, script)


def test_a_desk_takes_no_large_bodies(tmp_path):
    async def flood():
        for _ in range(64):
            yield b"x" * 65_536

    async def script(opened):
        for body in (b"x" * 5000, flood()):
            status, refused = await opened.ask("POST", "/v1/keys/claim", data=body)
            assert (status, refused["error"]["code"]) == (413, "request_too_large")
            assert "4096" in refused["error"]["message"]
        assert (await opened.ask("POST", REVOKE, key=opened.key, data=b"x" * 5000))[0] == 413
        assert (await opened.ask("GET", SELF, key=opened.key))[0] == 200

    through(tmp_path, script)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", f"/v1/models?api_key={SECRET}"),
        ("GET", f"/v1/models/{SECRET}"),
        ("POST", f"/v1/keys/claim?claim={CLAIM}"),
        ("POST", f"/v1/keys/claim/{CLAIM}"),
        ("POST", "/v1/chat/completions?t=tela_invite_x"),
        ("GET", f"/{SECRET}"),
    ],
)
def test_a_secret_in_a_url_is_refused_and_not_repeated(tmp_path, method, path):
    async def script(opened):
        opened.offer(claim=CLAIM)
        status, refused = await opened.ask(method, path, key=opened.key, json={"claim": CLAIM, "digest": "ab" * 32})
        assert (status, refused["error"]["code"]) == (400, "secret_in_url")
        assert SECRET not in str(refused)
        assert CLAIM not in str(refused)
        assert (await opened.claim(CLAIM, SECRET))[0] == 200

    through(tmp_path, script)


def test_no_log_ever_holds_a_secret(tmp_path, caplog):
    caplog.set_level(logging.DEBUG)

    async def script(opened):
        opened.offer(claim=CLAIM)
        digest = {"claim": CLAIM, "digest": "ab" * 32}
        await opened.claim(CLAIM, SECRET)
        await opened.claim(CLAIM, OTHER)
        await opened.ask("POST", "/v1/keys/claim", json={**digest, "more": SECRET})
        await opened.ask("POST", "/v1/keys/claim", data=CLAIM.encode() * 200)
        await opened.ask("GET", f"/v1/models?key={SECRET}", key=SECRET)
        await opened.ask("POST", "/v1/chat/completions", key=SECRET, json={"model": "m", "api_key": SECRET})
        await opened.ask("GET", SELF, key=CLAIM)
        await opened.ask("GET", SELF, key=f"{SECRET}x")
        await opened.ask("GET", SELF, headers={"Authorization": f"Basic {SECRET}", "x-api-key": OTHER})
        host, port = opened.urls[0].removeprefix("http://").split(":")
        for raw in (f"GET /{SECRET} HTTP/9\r\n\r\n", f"{SECRET}\r\n\r\n", f"GET / HTTP/1.1\r\n{SECRET}\r\n\r\n"):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(raw.encode())
            assert SECRET.encode() not in await reader.read()
            writer.close()
        opened.nodes[0].door.ledger.close()
        await opened.ask("POST", REVOKE, key=SECRET, json={"reason": "x"})

    through(tmp_path, script)
    assert "key claimed" in caplog.text
    assert "key refused" in caplog.text
    shown = caplog.text + str([record.__dict__ for record in caplog.records])
    for secret in (CLAIM, SECRET, OTHER):
        assert secret not in shown
        assert secret[12:40] not in shown


# --- readiness


def test_a_door_is_ready_once_it_is_linked(tmp_path):
    async def script(opened):
        for at in (0, 1):
            assert await opened.until("GET", "/readyz", 200, at=at) == (200, {"ready": True, "reasons": []})

    through(tmp_path, script, count=2)


def test_a_door_that_is_not_ready_says_why_to_anybody(tmp_path):
    async def script(opened):
        status, said = await opened.ask("GET", "/readyz")
        assert (status, said["ready"]) == (503, False)
        assert said["reasons"] == ["no link to any other node"]
        await asyncio.to_thread(opened.nodes[0].door.ledger.close)
        assert "no usage can be recorded" in (await opened.ask("GET", "/readyz"))[1]["reasons"]
        assert (await opened.ask("GET", "/health"))[0] == 200

    through(tmp_path, script)


# --- TLS


def trusting(cert, *, newest=None):
    context = ssl.create_default_context(cafile=cert)
    if newest is not None:
        context.maximum_version = newest
    return context


def test_a_door_with_a_certificate_speaks_https_and_nothing_else(tmp_path):
    cert, key = certificate(tmp_path)

    async def script(opened):
        assert opened.urls[0].startswith("https://127.0.0.1:")
        opened.offer(claim=CLAIM)
        status, claimed = await opened.claim(CLAIM, SECRET, ssl=trusting(cert))
        assert (status, claimed["base_url"]) == (200, f"{opened.urls[0]}/v1")
        assert (await opened.ask("GET", SELF, key=SECRET, ssl=trusting(cert)))[0] == 200
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await opened.ask("GET", SELF, key=SECRET)
        with pytest.raises(aiohttp.ClientError):
            async with opened.session.get(opened.urls[0].replace("https", "http") + "/health"):
                pass

    through(tmp_path, script, door=DoorConfig(address="127.0.0.1:0", tls_cert=cert, tls_key=key))


@pytest.mark.parametrize(("newest", "is_sealed"), [(ssl.TLSVersion.TLSv1_2, True), (ssl.TLSVersion.TLSv1_3, True)])
def test_what_is_negotiated_is_forward_secret_and_authenticated(tmp_path, newest, is_sealed):
    cert, key = certificate(tmp_path)

    async def script(opened):
        host, port = opened.urls[0].removeprefix("https://").split(":")
        context = trusting(cert, newest=newest)
        reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
        name = writer.get_extra_info("cipher")[0]
        assert ("GCM" in name or "CHACHA20" in name) == is_sealed
        writer.close()
        await writer.wait_closed()
        context.set_ciphers("AES128-SHA:AES256-SHA")
        if newest is ssl.TLSVersion.TLSv1_2:
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await asyncio.open_connection(host, int(port), ssl=context)
        del reader

    through(tmp_path, script, door=DoorConfig(address="127.0.0.1:0", tls_cert=cert, tls_key=key))


def test_a_node_whose_certificate_is_none_does_not_start_and_names_the_file(tmp_path):
    cert, _ = certificate(tmp_path)

    async def script(_):
        raise AssertionError("it started")

    named = pytest.RaisesExc(TelaError, match=re.escape(cert))
    with pytest.RaisesGroup(named, flatten_subgroups=True):
        through(tmp_path, script, door=DoorConfig(address="127.0.0.1:0", tls_cert=cert, tls_key=cert))


# --- plain HTTP beyond this host


def own_address():
    """An address of this machine that is not loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.254", 9))  # sends nothing
        except OSError:
            return None
        address = str(probe.getsockname()[0])
    return None if address.startswith(("127.", "0.")) else address


def test_a_key_or_claim_in_the_clear_is_refused_from_beyond_and_taken_from_here(tmp_path):
    address = own_address()
    if address is None:
        pytest.skip("this machine has no address but loopback")

    async def script(opened):
        opened.offer(claim=CLAIM)
        near = opened.urls[0].replace("0.0.0.0", "127.0.0.1")
        for method, path in (("GET", SELF), ("GET", MODELS), ("POST", REVOKE), ("POST", "/v1/chat/completions")):
            opened.urls[0] = opened.urls[0].replace("0.0.0.0", address)
            status, refused = await opened.ask(method, path, key=opened.key)
            assert (status, refused["error"]["code"]) == (403, "insecure_transport")
        status, refused = await opened.claim(CLAIM, SECRET, headers={"X-Forwarded-Proto": "https"})
        assert (status, refused["error"]["code"]) == (403, "insecure_transport")
        assert (await opened.ask("GET", "/health"))[0] == 200
        opened.urls[0] = near
        status, claimed = await opened.claim(CLAIM, SECRET)
        assert (status, claimed["base_url"]) == (200, "")  # 0.0.0.0 would send nobody anywhere
        assert (await opened.ask("GET", SELF, key=SECRET))[0] == 200

    through(tmp_path, script, door=DoorConfig(address="0.0.0.0:0"))


def test_plain_http_beyond_this_host_is_taken_when_its_owner_says_so(tmp_path):
    address = own_address()
    if address is None:
        pytest.skip("this machine has no address but loopback")

    async def script(opened):
        assert (await opened.ask("GET", SELF, key=opened.key))[0] == 200

    through(tmp_path, script, door=DoorConfig(address=f"{address}:0", insecure_http=True))


@pytest.mark.parametrize("network", ["127.0.0.0/8", "127.0.0.1"])
def test_a_proxy_that_is_trusted_says_how_its_client_came(tmp_path, network):
    async def script(opened):
        async def status(**headers):
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            return (await opened.ask("GET", SELF, key=opened.key, headers=named))[0]

        assert await status(X_Forwarded_For="192.0.2.9", X_Forwarded_Proto="https") == 200
        assert await status(X_Forwarded_For="192.0.2.9", X_Forwarded_Proto="http") == 403
        assert await status(X_Forwarded_For="192.0.2.9") == 403
        assert await status(X_Forwarded_For="127.0.0.1", X_Forwarded_Proto="http") == 403
        assert await status() == 200  # somebody on this host

    through(tmp_path, script, door=DoorConfig(address="127.0.0.1:0", behind_proxy=(network,)))


def test_claims_behind_a_proxy_are_counted_by_the_client_it_names(tmp_path):
    async def script(opened):
        async def status(client):
            given = {"X-Forwarded-For": f"10.0.0.1, {client}", "X-Forwarded-Proto": "https"}
            return (await opened.claim(CLAIM, SECRET, headers=given))[0]

        assert [await status("192.0.2.9") for _ in range(11)] == [403] * 10 + [429]
        assert await status("192.0.2.10") == 403

    through(tmp_path, script, door=DoorConfig(address="127.0.0.1:0", behind_proxy=("127.0.0.0/8",)))


def test_a_trailer_says_nothing_of_who_a_client_is(tmp_path):
    """A proxy that strips what clients say of themselves in headers may let trailers pass (RFC 9110 §6.5)."""

    async def script(opened):
        host, port = opened.urls[0].removeprefix("http://").split(":")
        head = "POST /v1/keys/claim HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n"
        for number in range(11):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(f"{head}X-Forwarded-For: 192.0.2.{number}\r\nX-Forwarded-Proto: https\r\n\r\n".encode())
            line = await reader.readline()
            writer.close()
        assert b" 429 " in line

    through(tmp_path, script, door=DoorConfig(address="127.0.0.1:0", behind_proxy=("127.0.0.0/8",)))


# --- unix sockets


def test_a_unix_door_is_its_owner_s_alone_and_gone_at_the_end(tmp_path):
    with tempfile.TemporaryDirectory(prefix="t", dir="/tmp") as name:
        path = Path(name) / "door.sock"
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(path))

        async def main():
            connector = aiohttp.UnixConnector(str(path))
            async with doors(
                tmp_path, door=DoorConfig(address=f"unix:{path}", url="https://llm.lab"), connector=connector
            ) as opened:
                assert opened.urls == [f"unix:{path}"]
                assert stat.S_IMODE(path.stat().st_mode) == 0o600
                opened.urls = ["http://door"]
                opened.offer(claim=CLAIM)
                status, claimed = await opened.claim(CLAIM, SECRET)
                assert (status, claimed["base_url"]) == (200, "https://llm.lab/v1")
                assert (await opened.ask("GET", SELF, key=SECRET))[0] == 200

        asyncio.run(main())
        assert os.listdir(name) == []  # noqa: PTH208
