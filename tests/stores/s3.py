"""An S3 client that is not sizegate's: boto3. Says what it did as one JSON line each.

endpoint= key= secret= bucket= do=create|list|delete|put|rename [object=KEY] [text=TEXT] [to=KEY]

list reads every object and says its key, size, sha256 and the checksum that the store keeps.
"""

import hashlib
import json
import sys

import boto3
from botocore.config import Config

OPTIONS = dict(arg.split("=", 1) for arg in sys.argv[1:])
BUCKET = OPTIONS["bucket"]
S3 = boto3.client(
    "s3",
    endpoint_url=OPTIONS["endpoint"],
    aws_access_key_id=OPTIONS["key"],
    aws_secret_access_key=OPTIONS["secret"],
    region_name="us-east-1",
    config=Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 1}),
)


def say(**line):
    print(json.dumps(line), flush=True)


def look(key):
    got = S3.get_object(Bucket=BUCKET, Key=key, ChecksumMode="ENABLED")
    body = got["Body"].read()
    return {
        "key": key,
        "size": len(body),
        "sha256": hashlib.sha256(body).hexdigest(),
        "checksum": got.get("ChecksumSHA256"),
    }


def main():
    action = OPTIONS["do"]
    if action == "create":
        S3.create_bucket(Bucket=BUCKET)
        say(done=action)
    elif action == "delete":
        S3.delete_object(Bucket=BUCKET, Key=OPTIONS["object"])
        say(done=action)
    elif action == "put":
        S3.put_object(Bucket=BUCKET, Key=OPTIONS["object"], Body=OPTIONS["text"].encode())
        say(done=action)
    elif action == "rename":
        source = {"Bucket": BUCKET, "Key": OPTIONS["object"]}
        S3.copy_object(Bucket=BUCKET, Key=OPTIONS["to"], CopySource=source)
        S3.delete_object(Bucket=BUCKET, Key=OPTIONS["object"])
        say(done=action)
    elif action == "list":
        pages = S3.get_paginator("list_objects_v2").paginate(Bucket=BUCKET)
        for page in pages:
            for found in page.get("Contents", []):
                say(**look(found["Key"]))
    else:
        sys.exit(f"no such thing to do: {action}")


main()
