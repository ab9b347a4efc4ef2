"""An engine that does what it should not, behind a whole fabric, and what clients read of it."""

import asyncio
import json
import re

from tests.node.fabric import MODEL, fabric


async def error_of(response):
    body = await response.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert response.headers["x-request-id"]
    return response.status, body["error"]["code"], body["error"]


class Engine:
    """An engine that answers whatever a test says, on a real socket."""

    def __init__(self, answer):
        self.answer = answer
        self.seen = []

    async def talk(self, reader, writer):
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = re.search(rb"content-length: (\d+)", head.lower())
                if length:
                    await reader.readexactly(int(length[1]))
                await self.reply(head, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def reply(self, head, writer):
        if head.startswith(b"GET /v1/models"):
            body = json.dumps({"object": "list", "data": [{"id": MODEL, "object": "model"}]}).encode()
            kind = b"content-type: application/json\r\nconnection: close\r\n"
            writer.write(b"HTTP/1.1 200 OK\r\n%scontent-length: %d\r\n\r\n%s" % (kind, len(body), body))
        elif head.startswith(b"GET "):
            writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
        elif b"tela-trial" in head:
            await whole(b'{"choices":[{"message":{"content":"x"}}]}', b"connection: close\r\n")(writer)
        else:
            self.seen.append(head)
            await self.answer(writer)


def behind(tmp_path, answer, script, **options):
    """Run a script against a fabric whose only engine is hostile."""

    async def main():
        engine = Engine(answer)
        server = await asyncio.start_server(engine.talk, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with fabric(tmp_path, workers=1, engine_url=url, **options) as door:
            await script(door, engine)
        server.close()

    asyncio.run(main())


def whole(body=b'{"ok":1}', head=b"content-type: application/json\r\n", status=b"200 OK"):
    async def answer(writer):
        writer.write(b"HTTP/1.1 %s\r\n%scontent-length: %d\r\n\r\n%s" % (status, head, len(body), body))

    return answer


def events(*parts, kind=b"text/event-stream", end=b""):
    async def answer(writer):
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: %s\r\ntransfer-encoding: chunked\r\n\r\n" % kind)
        for part in parts:
            writer.write(b"%x\r\n%s\r\n" % (len(part), part))
            await writer.drain()
        if end is None:
            writer.transport.abort()
        else:
            writer.write(b"0\r\n\r\n" + end)

    return answer


DONE = b"data: [DONE]\n\n"
CHUNK = b'data: {"choices":[{"index":0,"delta":{"content":"x"}}]}\n\n'
