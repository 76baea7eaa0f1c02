"""Makes the table of docs/compatibility.md from what the clients said: RESULTS BROKER [DOCUMENT].

A line of RESULTS is a client, its version, its exit code and what it printed, with tabs between. Fails where a client did
not do what it should.
"""

import json
import sys

BEGIN, END = "<!-- written by make compatibility -->", "<!-- until here -->"
results, broker, *document = sys.argv[1:]


def yes(is_so):
    return "yes" if is_so else "**no**"


rows, failed = [], []
for line in open(results, encoding="utf-8"):
    client, version, code, said = line.rstrip("\n").split("\t", 3)
    try:
        said = json.loads(said)
    except ValueError:
        said = {"refusal": "", "read": ""}
    refusal, read = said["refusal"], said["read"].split()
    produced, consumed = code == "0", read == ["first", "last"]
    if "sizegate refused" in refusal:
        shown = "its error message"
    elif refusal:
        shown = "an error without it"
    else:
        shown = "**none**"
    after = said.get("after") or ("a new producer does" if said.get("is_dead") else yes("last" in read))
    rows.append(f"| {client} | {version} | {yes(produced)} | {yes(consumed)} | {shown} | {after} |")
    if not (produced and consumed and refusal):
        failed.append(f"{client} {version}")
table = "\n".join([
    f"Through sizegate to Kafka {broker}:", "",
    "| client library or framework | version | produces | consumes | shows of a refusal | works on afterwards |",
    "|---|---|---|---|---|---|", *rows,
])
print(table)
if document:
    text = open(document[0], encoding="utf-8").read()
    before, rest = text.split(BEGIN)
    with open(document[0], "w", encoding="utf-8") as out:
        out.write(f"{before}{BEGIN}\n{table}\n{END}{rest.split(END)[1]}")
if failed:
    sys.exit("not as it should be: " + ", ".join(failed))
