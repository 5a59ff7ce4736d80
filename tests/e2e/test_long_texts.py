"""Texts that are far too long are refused before anybody spends minutes on them."""
import time

import pytest

import everwarm
from everwarm import GEMMA, SMOL

CONTEXT = 4096


@pytest.fixture(scope="module", params=[SMOL, GEMMA], ids=["smol", "gemma"])
def server(request, tmp_path_factory):
    directory = tmp_path_factory.mktemp("long")
    server = everwarm.Server(directory / "cache", "--ctx", str(CONTEXT), model=request.param,
                             log=directory / "server.log")
    yield server
    server.close()


@pytest.mark.parametrize("unit", ["<", " ", "\n", "a", "é", "\u6f22", "\U0001F600", "<unused7>", "lorem ipsum "],
                         ids=lambda unit: repr(unit))
def test_a_text_of_a_megabyte_is_refused_soon(server, unit):
    text = unit * (4_000_000 // len(unit.encode()))
    for path, body in (("/v1/completions", {"prompt": text, "max_tokens": 1}),
                       ("/v1/chat/completions", {"messages": [{"role": "user", "content": text}]}),
                       ("/tokenize", {"content": text})):
        began = time.monotonic()
        answer = server.request("POST", path, body)
        # Minutes where it is counted.
        assert time.monotonic() - began < 20, path
        assert answer.status == 400, (path, answer.body[:200])
        assert answer.error["code"] == "context_length_exceeded"
        assert str(CONTEXT) in answer.error["message"]
    server.assert_alive()


def test_a_text_that_fits_is_not_refused_for_its_bytes(server):
    # Long tokens: what the vocabulary has for spaces, and a word.
    for text in (" " * 4000, "\n" * 2000, "information " * 2000):
        tokens = server.tokens(text)
        answer = server.complete(text, 1)
        assert (answer.status == 200) == (len(tokens) < CONTEXT), answer.body[:200]
