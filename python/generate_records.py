#!/usr/bin/env python3
"""Writes taillab/records.py: the objects of `--json` as typed classes, from the JSON Schemas in ../schemas, and what
people read for each cause, from its row in ../crates/model/src/cause.rs.

  python/generate_records.py           writes the file
  python/generate_records.py --check   says whether it is up to date, by the exit code
"""

import json
import keyword
import re
import sys
import textwrap
from pathlib import Path

HERE = Path(__file__).resolve().parent
SCHEMAS = HERE.parent / "schemas"
CAUSES = HERE.parent / "crates" / "model" / "src" / "cause.rs"
RECORDS = HERE / "taillab" / "records.py"
# The results that a directory can hold: the schema, and the name of its class.
ROOTS = {
    "report": "Report",
    "load": "LoadReport",
    "rtt": "RttReport",
    "sim": "SimReport",
    "budget": "BudgetReport",
    "noise": "NoiseReport",
}
# Classes with methods of their own, which taillab/_record.py has.
BASES = {"Distribution": "DistributionRecord"}
PLAIN = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
WIDTH = 110

HEAD = '''"""The objects of `--json` as typed classes. Written by generate_records.py from the JSON Schemas: do not edit.

Times are integer nanoseconds where a name ends in `_ns`. A part that a result does not have is `None`.
"""

from __future__ import annotations

from typing import {typing}

from taillab._record import DistributionRecord, Record

SCHEMA_VERSION = {version}
"""Version of the shapes below: `schema_version` of a result."""
'''


def text():
    """The whole module."""
    schemas = {name: json.loads((SCHEMAS / f"{name}.schema.json").read_text()) for name in ROOTS}
    versions = {schema["properties"]["schema_version"]["const"] for schema in schemas.values()}
    if len(versions) != 1:
        sys.exit(f"the results have several versions, {sorted(versions)}: give each class its own")
    shared = {}
    for schema in schemas.values():
        for name, shape in schema["$defs"].items():
            if shared.setdefault(name, shape) != shape:
                sys.exit(f"{name} is not the same in all schemas: give one of them another name")
    parts = []
    aliases = {name: alias(shape) for name, shape in sorted(shared.items())}
    parts.extend(f"{name} = {value}\n{documented(shared[name], '')}"
                 for name, value in aliases.items() if value is not None)
    parts.extend(class_text(name, shared[name]) for name, value in aliases.items() if value is None)
    parts.extend(class_text(name, schemas[schema]) for schema, name in ROOTS.items())
    parts.append(labels(shared["Cause"]))
    used = "Any, Literal" if any("Any" in part for part in parts) else "Literal"
    head = HEAD.format(version=versions.pop(), typing=used)
    return "\n\n".join(part.rstrip() + "\n" for part in [head, *parts])


def labels(causes):
    """The label of each cause."""
    rows = dict(re.findall(r'key: ("[a-z_]+"),\s+label: ("[^"]+"),', CAUSES.read_text()))
    keys = [json.dumps(variant["const"]) for variant in causes["oneOf"]]
    if set(keys) != set(rows):
        sys.exit(f"{CAUSES} has other causes than the schema: write the schemas anew first")
    lines = "".join(f"    {key}: {rows[key]},\n" for key in keys)
    return f'CAUSE_LABELS: dict[str, str] = {{\n{lines}}}\n"""What people read for each cause."""'


def alias(shape):
    """The type of what is no object; `None` for an object."""
    variants = shape.get("oneOf")
    if variants and all("const" in variant for variant in variants):
        return literal([variant["const"] for variant in variants])
    if "properties" in shape or variants:
        return None
    return hint(shape)


def literal(values):
    short = f"Literal[{', '.join(json.dumps(value) for value in values)}]"
    if len(short) <= WIDTH - 20:
        return short
    lines = "".join(f"    {json.dumps(value)},\n" for value in values)
    return f"Literal[\n{lines}]"


def class_text(name, shape):
    """A class with a field for each property, its description below it."""
    lines = [f"class {name}({BASES.get(name, 'Record')}):", documented(shape, "    ") + "\n"]
    for key, (property_shape, always) in properties(shape).items():
        kind = hint(property_shape)
        if not always and "None" not in kind.split(" | "):
            kind += " | None"
        field = f"{key}_" if keyword.iskeyword(key) else key
        lines.append(f"    {field}: {kind}".replace("\n", "\n    "))
        lines.append(documented(property_shape, "    "))
    return "\n".join(line for line in lines if line)


def properties(shape):
    """Each property with its shape and whether it is always there; variants are one class."""
    required = set(shape.get("required", ()))
    found = {key: (value, key in required) for key, value in shape.get("properties", {}).items()}
    variants = shape.get("oneOf") or shape.get("anyOf") or []
    for variant in variants:
        for key, value in variant.get("properties", {}).items():
            everywhere = all(key in other.get("required", ()) for other in variants)
            known = found.get(key, (value, everywhere))[0]
            if "const" in value and "const" in known and known != value:
                value = {**value, "enum": [*constants(known), *constants(value)]}
                del value["const"]
            elif "enum" in known and "const" in value:
                value = {**known, "enum": [*known["enum"], value["const"]]}
            elif key in found and "null" in str(known.get("type")):
                value = known
            found[key] = (value, everywhere)
    return found


def constants(shape):
    return shape.get("enum", [shape["const"]] if "const" in shape else [])


def hint(shape):
    """A type as Python writes it."""
    if "$ref" in shape:
        return shape["$ref"].rpartition("/")[2]
    if "enum" in shape:
        return literal(shape["enum"])
    if "const" in shape:
        return literal([shape["const"]])
    for several in ("anyOf", "oneOf"):
        if several in shape:
            return union(hint(each) for each in shape[several])
    kind = shape.get("type")
    if isinstance(kind, list):
        return union(hint({**shape, "type": each}) for each in kind)
    if kind == "array":
        if "prefixItems" in shape:
            return f"tuple[{', '.join(hint(each) for each in shape['prefixItems'])}]"
        return f"list[{hint(shape['items'])}]" if "items" in shape else "list[Any]"
    if kind == "object":
        values = shape.get("additionalProperties")
        return f"dict[str, {hint(values) if isinstance(values, dict) else 'Any'}]"
    return PLAIN.get(kind, "Any")


def union(kinds):
    return " | ".join(dict.fromkeys(kinds))


def documented(shape, indent):
    """The description as a docstring."""
    description = " ".join(shape.get("description", "").replace("\\", "\\\\").split())
    if not description:
        return ""
    if description.endswith('"'):
        description += " "
    one_line = f'{indent}"""{description}"""'
    if len(one_line) <= WIDTH:
        return one_line
    wrapped = textwrap.wrap(description, WIDTH - len(indent) - 3)
    lines = [f'"""{wrapped[0]}', *wrapped[1:], '"""']
    return "\n".join(indent + line for line in lines)


def main():
    written = text()
    if "--check" in sys.argv[1:]:
        return 0 if RECORDS.read_text() == written else 1
    RECORDS.write_text(written)
    return 0


if __name__ == "__main__":
    sys.exit(main())
