"""Requests that are legal but odd, and wrong ones, on every endpoint: none ends the server."""
import json
import random

import pytest

from everwarm import GEMMA, SMOL, question

def chat(text, **more):
    return {"messages": [{"role": "user", "content": text}], "max_tokens": 4, "temperature": 0, **more}


# Path, body with a text, and where the text of a whole and of a streamed reply is.
ENDPOINTS = {
    "/v1/chat/completions": lambda text: chat(text),
    "/v1/completions": lambda text: {"prompt": text, "max_tokens": 4, "temperature": 0},
    "/v1/messages": lambda text: chat(text),
    "/v1/responses": lambda text: {"input": text, "max_output_tokens": 4, "temperature": 0},
}


def whole_text(path, answer):
    if path == "/v1/messages":
        return "".join(block["text"] for block in answer.json["content"])
    if path == "/v1/responses":
        return "".join(part["text"] for item in answer.json["output"] for part in item["content"])
    return answer.text


def streamed_text(server, path, body):
    """Joined pieces; every line of the stream is UTF-8 and JSON."""
    stream = server.stream(path, body)
    assert stream.status == 200
    text = ""
    for event in stream.events():
        if event == "[DONE]":
            break
        data = json.loads(event)
        assert "error" not in data or data["error"] is None, data
        if path == "/v1/messages":
            text += data.get("delta", {}).get("text", "")
        elif path == "/v1/responses":
            text += data["delta"] if data["type"] == "response.output_text.delta" else ""
        else:
            for choice in data["choices"]:
                text += choice["text"] if "text" in choice else choice["delta"].get("content", "")
    return text


def message_of(answer):
    assert answer.json["error"]["message"]
    return answer.json["error"]["message"]


@pytest.mark.parametrize("path", ENDPOINTS)
def test_joined_pieces_are_the_whole_text(shared, path):
    body = ENDPOINTS[path]("Name a river.")
    name = "max_output_tokens" if path == "/v1/responses" else "max_tokens"
    body[name] = 24
    whole = whole_text(path, shared.request("POST", path, body))
    assert whole
    assert streamed_text(shared, path, body) == whole


@pytest.mark.parametrize("path", ENDPOINTS)
def test_odd_text_is_text(shared, path):
    for text in ("a\0b", "\ufeffbegin", "\u202eright to left\u200d", "\U0001f468\u200d\U0001f469",
                 "<|im_end|>\n<|im_start|>system\n", "\r\n\t\v", "{{ raise }}{% for %}", "%s%n%d"):
        answer = shared.request("POST", path, ENDPOINTS[path](text))
        assert answer.status == 200, text
    # A byte order mark before the body.
    body = b"\xef\xbb\xbf" + json.dumps(ENDPOINTS[path]("hi")).encode()
    assert shared.request("POST", path, body).status == 200
    shared.assert_alive()


@pytest.mark.parametrize("path", [*ENDPOINTS, "/v1/messages/count_tokens"])
def test_a_wrong_body_is_the_clients_error_in_the_apis_form(shared, path):
    for body in (b"", b"{", b"[]", b"null", b"7", b"\xff\xfe{\0", b"{}", b"[" * 100000,
                 b'{"messages":7,"prompt":7.5,"input":true}',
                 b'{"messages":[],"prompt":[],"input":[]}',
                 b'{"messages":[{"role":"user","content":"\\ud800"}],"prompt":"\\udc00","input":"\\ud800x"}',
                 b'{"messages":[{"role":"robot","content":"a"}],"prompt":{},"input":[{"role":"robot"}]}'):
        answer = shared.request("POST", path, body)
        assert answer.status == 400, body[:80]
        if path.startswith("/v1/messages"):
            assert answer.json["type"] == "error"
        assert answer.json["error"]["type"] == "invalid_request_error"
        assert message_of(answer)
    shared.assert_alive()


@pytest.mark.parametrize("path", ENDPOINTS)
def test_absurd_numbers_name_their_field(shared, path):
    name = "max_output_tokens" if path == "/v1/responses" else "max_tokens"
    for number in ("1e18", "-1", '"5"', "1.5", "[]", "18446744073709551616"):
        body = json.dumps({**ENDPOINTS[path]("hi"), name: "NUMBER"}).replace('"NUMBER"', number)
        answer = shared.request("POST", path, body.encode())
        assert answer.status == 400, number
        assert name in message_of(answer)
    shared.assert_alive()


@pytest.mark.parametrize("path", ENDPOINTS)
def test_long_lines_are_a_clear_error_before_the_first_byte_of_a_stream(shared, path):
    for text, stream in (("A" * 100_000, False), ("\u00e9" * 50_000, True), ("ab" * 100_000, True),
                         ("x" * 5_000_000, False)):
        answer = shared.request("POST", path, {**ENDPOINTS[path](text), "stream": stream})
        assert answer.status == 400
        assert answer.headers["Content-Type"] == "application/json"
        assert "4096" in message_of(answer) or "too long" in message_of(answer)
    shared.assert_alive()


def test_a_long_line_may_be_the_result_of_a_tool(shared):
    for text in ("A" * 100_000, "7" * 50_000, "QUJD" * 50_000):
        history = [{"role": "user", "content": "Look."},
                   {"role": "assistant", "content": None, "tool_calls": [
                       {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
                   {"role": "tool", "tool_call_id": "c1", "content": text}]
        answer = shared.chat(history, 1)
        assert answer.status == 400
        assert answer.error["code"] == "context_length_exceeded"
    shared.assert_alive()


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_stop_strings_cut_whole_and_streamed_alike(shared, path):
    body = {**ENDPOINTS[path]("Tell me about a long river in three sentences."), "max_tokens": 60,
            "ignore_eos": True}
    whole = whole_text(path, shared.request("POST", path, body))
    middle = len(whole) // 2
    stop = whole[middle:middle + 6]
    expected = whole[:whole.index(stop)]
    for stops, text in (([stop], expected), ([stop, stop[:4]], whole[:whole.index(stop[:4])]),
                        ([stop + "\u2603", stop], expected), (["", "\u2603"], whole),
                        # Its beginning, at the very end, is text like any other.
                        ([whole[-4:] + "\u2603"], whole)):
        answer = shared.request("POST", path, {**body, "stop": stops})
        assert whole_text(path, answer) == text, stops
        assert streamed_text(shared, path, {**body, "stop": stops}) == text, stops


def test_grammars_that_are_none_are_the_clients_error(shared):
    for grammar in ("", " ", "root", "root ::= (", "root ::= other", "root ::= root \"a\"",
                    "root ::= \"a\"{99999}", "(" * 50_000, "root ::= " + "(" * 50_000, "\0"):
        answer = shared.chat([{"role": "user", "content": "hi"}], 2, grammar=grammar)
        assert answer.status == (200 if grammar == "" else 400), grammar[:40]
    for schema in ({"$ref": "#/nowhere"}, {"type": "nonsense"}, {"pattern": "^(a$", "type": "string"},
                   {"type": "string", "minLength": 10**9},
                   {"type": "array", "items": {"type": "string"}, "maxItems": 10**9}):
        answer = shared.chat([{"role": "user", "content": "hi"}], 2, response_format={
            "type": "json_schema", "json_schema": {"name": "x", "schema": schema}})
        assert answer.status in (200, 400), schema
    shared.assert_alive()


TOOL = {"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}}
SEEDS = [
    ("/v1/chat/completions", {
        **chat("hi"), "n": 2, "stop": ["x"], "logprobs": True, "top_logprobs": 2, "logit_bias": {"5": 1},
        "tools": [{"type": "function", "function": TOOL}], "tool_choice": "required", "seed": 3,
        "stream_options": {"include_usage": True}}),
    ("/v1/chat/completions", {**chat("hi"), "response_format": {
        "type": "json_schema", "json_schema": {"name": "x", "schema": {
            "type": "object", "properties": {"a": {"type": "array", "items": {"enum": ["b", 1, None]}},
                                             "c": {"type": "string", "pattern": "^[a-z]{1,3}$"}},
            "required": ["a"]}}}}),
    ("/v1/chat/completions", {"messages": [
        {"role": "system", "content": "s"}, {"role": "user", "content": [{"type": "text", "text": "a"}]},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "c", "content": "r"}], "max_tokens": 2, "temperature": 0}),
    ("/v1/completions", {"prompt": ["a", "b"], "max_tokens": 2, "echo": True, "temperature": 0.5,
                         "grammar": "root ::= [a-z ]+ | \"x\" root2\nroot2 ::= [0-9]{1,3}"}),
    ("/v1/messages", {**chat("hi"), "system": [{"type": "text", "text": "s"}], "tools": [
        {"name": "f", "input_schema": TOOL["parameters"]}], "tool_choice": {"type": "any"}}),
    ("/v1/responses", {"input": [{"role": "user", "content": "a"}], "max_output_tokens": 2,
                       "tools": [{"type": "function", **TOOL}], "text": {"format": {"type": "text"}}}),
]
SCRAPS = ["[", "]", "{", "}", '"', ",", ":", "null", "1e999", "-1", "1e18", "true", "[]", "{}", "\\u0000",
          "\\ud800", "\\", "0.5", '""', "(", ")", "*", "::=", "\u00e9", "2147483648", '"$ref":"#",']


def test_changed_bodies_are_answered_or_refused_and_never_fail(start):
    # A body that lost its limit fills the context.
    server = start("--ctx", "320")
    chance = random.Random(8)
    statuses = {}
    for turn in range(240):
        path, body = SEEDS[turn % len(SEEDS)]
        text = json.dumps({**body, "stream": True} if chance.random() < 0.3 else body)
        for _ in range(chance.randrange(3)):
            at = chance.randrange(len(text))
            cut = chance.choice([0, 0, 1, 4])
            text = text[:at] + chance.choice([*SCRAPS, ""]) + text[at + cut:]
        status = server.request("POST", path, text.encode()).status
        assert status in (200, 400), (status, path, text)
        statuses[status] = statuses.get(status, 0) + 1
    assert min(statuses[200], statuses[400]) > 40, statuses
    server.assert_alive()


def test_a_client_that_leaves_a_whole_reply_or_a_queue_disturbs_nobody(start):
    server = start("--max-batch", "1")
    endless = {"prompt": "Rivers:", "max_tokens": 4000, "temperature": 0, "ignore_eos": True}
    running = server.stream("/v1/completions", {**endless, "max_tokens": 60})
    pieces = running.pieces()
    first = next(pieces)
    # Not streamed: the connection closes while the request waits for its turn.
    waiting = server.post_unread("/v1/completions", {**endless, "prompt": "Lakes:"})
    waiting.close()
    assert first + "".join(pieces) == server.cold_complete("Rivers:", 60, ignore_eos=True).text
    assert server.complete("Mountains:", 4).text != ""


@pytest.mark.parametrize("model", [SMOL, GEMMA], ids=["full", "window"])
def test_a_history_without_a_part_of_a_reply_goes_on_where_it_began(start, model):
    server = start(model=model)
    messages = question(400, "otter")
    first = server.chat(messages, 12, ignore_eos=True)
    messages = [*messages, {"role": "assistant", "content": first.text[len(first.text) // 2:]},
                {"role": "user", "content": "Go on."}]
    # Turn 2 goes on from where turn 1's reply began.
    second = server.chat(messages, 12, ignore_eos=True)
    assert second.cached >= first.prompt_tokens - 1
    assert second.text == server.cold_chat(messages, 12, ignore_eos=True).text
    # Turn 3 knows all of turn 2's prompt, also after a restart.
    assert server.flush().status == 200
    server.kill()
    server = start(model=model)
    messages = [*messages, {"role": "assistant", "content": second.text[1:] or "."},
                {"role": "user", "content": "And then?"}]
    third = server.chat(messages, 12, ignore_eos=True)
    assert third.cached >= second.prompt_tokens - 1
    assert third.text == server.cold_chat(messages, 12, ignore_eos=True).text
