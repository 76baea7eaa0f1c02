"""Writes JSON schemas as kubeconform takes them, strict: a key that Kubernetes does not know is a mistake.

kubernetes-schemas.py OUT SWAGGER.json [CRD.yaml …]

Kubernetes' own kinds come from its OpenAPI document, custom ones from their definitions. File names:
kind-group-version.json, the first part of the group only, all lower case.
"""

import json
import pathlib
import re
import sys

import yaml


def strict(schema):
    """Forbids what is not named, but where a schema says that names are free."""
    if isinstance(schema, list):
        return [strict(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    done = {key: strict(part) for key, part in schema.items()}
    if isinstance(done.get("properties"), dict) and "additionalProperties" not in done:
        if not done.get("x-kubernetes-preserve-unknown-fields"):
            done["additionalProperties"] = False
    if done.get("format") == "int-or-string" or done.get("x-kubernetes-int-or-string"):
        done.pop("type", None)
        done.pop("format", None)
        done["type"] = ["string", "integer"]
    # JSON Schema knows no such formats.
    if done.get("format") in ("int32", "int64", "double", "byte"):
        done.pop("format")
    return done


def closed(name, definitions):
    """A definition with all that it refers to."""
    needed, found = [name], {}
    while needed:
        each = needed.pop()
        if each not in found:
            found[each] = definitions[each]
            needed += re.findall(r'"#/definitions/([^"]+)"', json.dumps(definitions[each]))
    return {"$ref": f"#/definitions/{name}", "definitions": found}


def write(out, kind, group, version, schema):
    parts = [kind, group.split(".")[0], version] if group else [kind, version]
    (out / ("-".join(parts).lower() + ".json")).write_text(json.dumps(schema))


def main():
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    definitions = json.loads(pathlib.Path(sys.argv[2]).read_text())["definitions"]
    definitions = {name: strict(schema) for name, schema in definitions.items()}
    definitions["io.k8s.apimachinery.pkg.api.resource.Quantity"]["type"] = ["string", "number"]
    for name, schema in definitions.items():
        for kind in schema.get("x-kubernetes-group-version-kind", []):
            write(out, kind["kind"], kind["group"], kind["version"], closed(name, definitions))
    for path in sys.argv[3:]:
        for crd in yaml.safe_load_all(pathlib.Path(path).read_text()):
            for version in crd["spec"]["versions"]:
                schema = strict(version["schema"]["openAPIV3Schema"])
                schema["properties"]["metadata"] = {"type": "object"}
                write(out, crd["spec"]["names"]["kind"], crd["spec"]["group"], version["name"], schema)


main()
