"""Whether a document follows the schema that gpucheck publishes of it."""

import jsonschema

from gpucheck.cli.schema import schema_of


def follows(name, value):
    validator = jsonschema.Draft202012Validator(schema_of(name))
    found = [f"{'/'.join(map(str, e.absolute_path))}: {e.message[:200]}" for e in validator.iter_errors(value)]
    assert not found, found[:5]
