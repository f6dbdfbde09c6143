#!/usr/bin/env python3
"""Writes tests/fixtures/text/jinja_goldens.json: small templates with what Jinja2 itself makes of them.

Run with Debian's python3-jinja2 (3.1.2). The environment is that of transformers' apply_chat_template. A case that
fails in Jinja2 is written with "error": true; the engine must fail too (its words are its own).
"""
import copy
import datetime
import json
import pathlib
import sys

import jinja2
import jinja2.ext
import jinja2.sandbox

NOW = datetime.datetime(2026, 3, 4, 5, 6, 7)


class Generation(jinja2.ext.Extension):
    """{% generation %}: in transformers it marks the assistant's text; the text itself is unchanged."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_pass"), [], [], body).set_lineno(line)

    def _pass(self, caller):
        return caller()


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", "jinja2.ext.do", Generation]
    )
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = NOW.strftime
    return env


CONTEXT = {
    "name": "World",
    "empty": "",
    "text": "  The quick brown fox\n jumps over\n\nthe lazy dog  ",
    "unicode": "Grüße, 世界! ß Ǆ é",
    "quotes": "it's \"quoted\" \\ \t \u0007 \u00a0 \u2028",
    "html": "<a href=\"x\">Tom & 'Jerry'</a>",
    "n": 42,
    "negative": -7,
    "big": 9007199254740993,
    "pi": 3.14159,
    "tiny": 1e-7,
    "huge": 1e22,
    "whole": 5.0,
    "yes": True,
    "no": False,
    "nothing": None,
    "numbers": [3, 1, 4, 1, 5, 9, 2, 6],
    "words": ["pear", "Apple", "fig", "apple", "Banana"],
    "nested": [[1, 2], [3, [4, 5]], []],
    "mixed": [1, "a", None, True, 2.5, {"k": "v"}, []],
    "users": [
        {"name": "Zoe", "age": 30, "tags": ["x", "y"], "address": {"city": "Rome"}},
        {"name": "adam", "age": 25, "tags": [], "address": {"city": "Oslo"}},
        {"name": "Bob", "age": 30, "tags": ["z"], "address": {"city": "rome"}, "admin": True},
    ],
    "dict": {"b": 2, "a": 1, "C": 3},
    "items_key": {"items": 1, "keys": [2], "get": 3, "x": {"y": {"z": "deep"}}},
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": {"a": [1, 2.0, "é"]}}}]},
        {"role": "tool", "content": "{\"t\": 1}"},
    ],
}


def cases():
    yield from (line for line in (pathlib.Path(__file__).parent / "jinja_cases.txt").read_text().split("\n%%\n") if line)


def main():
    env = environment()
    results = []
    for source in cases():
        source = source.removesuffix("%END%")
        try:
            results.append({"template": source, "text": env.from_string(source).render(**copy.deepcopy(CONTEXT))})
        except Exception as error:  # whatever it is: the engine has to refuse it too
            if "--errors" in sys.argv:
                print(f"{source!r}: {type(error).__name__}: {error}", file=sys.stderr)
            results.append({"template": source, "error": True})
    path = pathlib.Path(__file__).parent.parent / "tests/fixtures/text/jinja_goldens.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {"jinja2": jinja2.__version__, "context": CONTEXT, "cases": results}
    path.write_text(json.dumps(document, ensure_ascii=False, indent=1) + "\n")
    print(f"{len(results)} cases, {sum('error' in r for r in results)} of them errors -> {path}")


if __name__ == "__main__":
    main()
