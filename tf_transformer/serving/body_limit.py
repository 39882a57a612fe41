"""Refuses requests whose body is too large, before it is in memory."""

import json


class BodyLimit:
    """An ASGI middleware that answers 413 when a request has more bytes than allowed."""

    def __init__(self, app, most):
        self.app = app
        self.most = most

    async def __call__(self, scope, receive, send):
        """Answer a request; see the ASGI specification."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        body, more = bytearray(), True
        while more:
            message = await receive()
            if message["type"] != "http.request":  # the client has left
                return
            body += message.get("body", b"")
            more = message.get("more_body", False)
            if len(body) > self.most:
                await self._refuse(send)
                return
        given = iter([{"type": "http.request", "body": bytes(body), "more_body": False}])

        async def again():
            message = next(given, None)
            return await receive() if message is None else message

        await self.app(scope, again, send)

    async def _refuse(self, send):
        error = f"body: expected at most {self.most:,} bytes, got more."
        content = json.dumps({"error": error}).encode()
        headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
        headers.append((b"content-length", str(len(content)).encode()))
        await send({"type": "http.response.start", "status": 413, "headers": headers})
        await send({"type": "http.response.body", "body": content})
