"""A client of Azure's blob storage that is not sizegate's: the REST API with a shared key, by hand.

endpoint=http://127.0.0.1:PORT/ACCOUNT account= key= container= do=create|list

list reads every blob and says its key, size and sha256.
"""

import base64
import email.utils
import hashlib
import hmac
import json
import sys
import urllib.parse
import urllib.request
import xml.etree.ElementTree

OPTIONS = dict(arg.split("=", 1) for arg in sys.argv[1:])
ACCOUNT, CONTAINER = OPTIONS["account"], OPTIONS["container"]
VERSION = "2023-11-03"


def ask(method, path, query=()):
    """Signed as "Authorize with Shared Key" says; all of these requests have an empty body."""
    url = OPTIONS["endpoint"] + path
    headers = {"x-ms-date": email.utils.formatdate(usegmt=True), "x-ms-version": VERSION}
    resource = f"/{ACCOUNT}{urllib.parse.urlparse(url).path}"
    resource += "".join(f"\n{name}:{value}" for name, value in sorted(query))
    named = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
    # The eleven standard headers are empty or not sent.
    text = f"{method}\n" + "\n" * 11 + named + resource
    digest = hmac.new(base64.b64decode(OPTIONS["key"]), text.encode(), hashlib.sha256).digest()
    headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}"
    if query:
        url += "?" + urllib.parse.urlencode(query)
    request = urllib.request.Request(url, method=method, headers=headers)
    if method == "PUT":
        request.add_header("Content-Length", "0")
    with urllib.request.urlopen(request, timeout=60) as response:
        return response.read()


def main():
    if OPTIONS["do"] == "create":
        ask("PUT", f"/{CONTAINER}", [("restype", "container")])
        print(json.dumps({"done": "create"}))
        return
    listed = ask("GET", f"/{CONTAINER}", [("comp", "list"), ("restype", "container")])
    for name in xml.etree.ElementTree.fromstring(listed).iter("Name"):
        body = ask("GET", f"/{CONTAINER}/{urllib.parse.quote(name.text)}")
        digest = hashlib.sha256(body).hexdigest()
        print(json.dumps({"key": name.text, "size": len(body), "sha256": digest}))


main()
