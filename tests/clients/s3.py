"""A small S3 over a directory of buckets, which checks each signature as botocore makes it: path-style requests, uploads in parts, lists, ranges."""

import hashlib
import http.server
import os
import threading
import urllib.parse
import xml.sax.saxutils

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

KEY, SECRET, REGION = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "eu-test-1"
PAGE = 3


class Auth(S3SigV4Auth):
    """Signs at the time of the request that is checked."""

    def _modify_request_before_signing(self, request):
        del request.headers["Authorization"]

    def _inject_signature_to_request(self, request, signature):
        request.signature = signature


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    root = uploads = None

    def log_message(self, *_):
        pass

    def answer(self, status, body=b"", etag=None):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        if etag:
            self.send_header("ETag", f'"{etag}"')
        self.end_headers()
        self.wfile.write(body)

    def refuse(self, status, code):
        self.answer(status, f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>by the test</Message></Error>'.encode())

    def is_signed(self, body):
        given = self.headers["Authorization"]
        names = given.split("SignedHeaders=")[1].split(",")[0].split(";")
        if self.headers["x-amz-content-sha256"] != hashlib.sha256(body).hexdigest():
            return False
        path, _, query = self.path.partition("?")
        url = f"http://{self.headers['Host']}{path}"
        request = AWSRequest(self.command, url, {name: self.headers[name] for name in names}, body)
        request.params = dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
        request.context["timestamp"] = self.headers["x-amz-date"]
        auth = Auth(Credentials(KEY, SECRET), "s3", REGION)
        text = auth.string_to_sign(request, auth.canonical_request(request))
        return given.endswith("Signature=" + auth.signature(text, request)) and f"Credential={auth.scope(request)}" in given

    def handle_request(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        if not self.is_signed(body):
            return self.refuse(403, "SignatureDoesNotMatch")
        parsed = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(parsed.query, keep_blank_values=True))
        bucket, _, key = urllib.parse.unquote(parsed.path).lstrip("/").partition("/")
        folder = os.path.join(self.root, bucket)
        if not os.path.isdir(folder):
            return self.refuse(404, "NoSuchBucket")
        path = os.path.join(folder, key)
        if self.command == "GET":
            return self.listed(folder, query) if not key else self.read(path)
        if self.command == "DELETE":
            self.uploads.pop(query["uploadId"], None)
            return self.answer(204)
        if "uploads" in query:
            upload = f"upload<{len(self.uploads)}>"
            self.uploads[upload] = {}
            return self.answer(200, f"<Result><UploadId>{xml.sax.saxutils.escape(upload)}</UploadId></Result>".encode())
        if "partNumber" in query:
            self.uploads[query["uploadId"]][int(query["partNumber"])] = body
            return self.answer(200, etag=hashlib.md5(body).hexdigest())
        if "uploadId" in query:
            body = b"".join(part for _, part in sorted(self.uploads.pop(query["uploadId"]).items()))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(body)
        etag = hashlib.md5(body).hexdigest()
        return self.answer(200, f"<Result><ETag>&quot;{etag}&quot;</ETag></Result>".encode() if self.command == "POST" else b"", etag)

    def listed(self, folder, query):
        found = sorted(os.path.relpath(os.path.join(at, name), folder) for at, _, names in os.walk(folder) for name in names)
        found = [key for key in found if key.startswith(query["prefix"]) and key > query.get("continuation-token", "")]
        page, is_truncated = found[:PAGE], len(found) > PAGE
        keys = "".join(
            f"<Contents><Key>{urllib.parse.quote(key, safe='')}</Key><Size>{os.path.getsize(os.path.join(folder, key))}</Size></Contents>"
            for key in page
        )
        token = f"<NextContinuationToken>{xml.sax.saxutils.escape(page[-1])}</NextContinuationToken>" if is_truncated else ""
        text = f'<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><IsTruncated>{str(is_truncated).lower()}</IsTruncated>{keys}{token}</ListBucketResult>'
        self.answer(200, text.encode())

    def read(self, path):
        if not os.path.isfile(path):
            return self.refuse(404, "NoSuchKey")
        first, last = map(int, self.headers["Range"].removeprefix("bytes=").split("-"))
        if first >= os.path.getsize(path):
            return self.refuse(416, "InvalidRange")
        with open(path, "rb") as file:
            file.seek(first)
            return self.answer(206, file.read(last + 1 - first))

    do_GET = do_PUT = do_POST = do_DELETE = handle_request


def serve(root, address):
    """Serves the directory's buckets at `HOST:PORT` for as long as the process lasts."""
    host, port = address.rsplit(":", 1)
    handler = type("Own", (Handler,), {"root": root, "uploads": {}})
    server = http.server.ThreadingHTTPServer((host, int(port)), handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
