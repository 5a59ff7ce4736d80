"""Prompts at the edges: nothing left to compute, one token, the context's end."""
import json

import pytest

from everwarm import BLOCK, document, question


def test_a_prompt_that_equals_a_cached_one_gets_the_same_text(shared):
    first = shared.complete("Rivers:", 16)
    assert first.text != ""
    for _ in range(2):
        again = shared.complete("Rivers:", 16)
        assert again.text == first.text
        assert again.cached <= again.prompt_tokens - 1
    for _ in range(2):
        stream = shared.stream("/v1/completions",
                               {"prompt": "Rivers:", "max_tokens": 16, "temperature": 0})
        assert "".join(stream.pieces()) == first.text
    shared.assert_alive()


@pytest.mark.parametrize("length", [1, 2, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 2 * BLOCK + 1])
def test_a_prompt_around_a_blocks_end_repeats_itself(shared, length):
    tokens = shared.tokens(document(400, "otter"))[:length]
    cold = shared.cold_complete(tokens)
    assert cold.text != ""
    for _ in range(3):
        again = shared.complete(tokens)
        assert again.text == cold.text
        assert again.cached <= length - 1
    assert again.cached == length - 1


def test_prompts_that_are_cut_shorter_and_shorter_get_their_own_text(shared):
    tokens = shared.tokens(document(400, "badger"))[:200]
    shared.complete(tokens)
    for length in (199, 198, 150, 129, 128, 127, 65, 64, 63, 2, 1):
        cut = shared.complete(tokens[:length])
        assert cut.text == shared.cold_complete(tokens[:length]).text
        assert cut.cached == length - 1


def test_a_chat_that_equals_a_cached_one_gets_the_same_text(shared):
    messages = question(200, "heron")
    first = shared.chat(messages)
    assert first.text != ""
    for _ in range(3):
        again = shared.chat(messages)
        assert again.text == first.text
        assert again.cached == again.prompt_tokens - 1


@pytest.mark.parametrize("prompt", ["", [], [""], [[]], None])
def test_an_empty_prompt_is_a_clear_400(shared, prompt):
    answer = shared.complete(prompt)
    assert answer.status == 400
    assert answer.error["param"] == "prompt"
    shared.assert_alive()


def test_nothing_to_generate_is_said_and_not_pretended(shared):
    answer = shared.complete("Rivers:", 0)
    assert answer.status == 200
    assert answer.json["choices"][0]["finish_reason"] == "length"
    assert answer.usage["completion_tokens"] == 0
    assert answer.text == ""


def test_the_same_prompt_right_after_the_reply_is_found(start):
    server = start()
    for tokens, word in ((300, "ibis"), (700, "gecko")):
        messages = question(tokens, word)
        first = server.chat(messages, 4)
        again = server.chat(messages, 4)
        assert again.text == first.text
        assert again.cached >= again.prompt_tokens - BLOCK


def test_replies_are_found_at_any_later_time_and_by_many_at_once(start):
    import concurrent.futures
    server = start()
    messages = question(500, "ibis")
    cold = server.cold_chat(messages)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: server.chat(messages), range(4)))
    assert {answer.text for answer in answers} == {cold.text}
    assert server.chat(messages).cached == cold.prompt_tokens - 1


def test_the_context_ends_with_an_honest_error(start):
    server = start("--ctx", "1024")
    tokens = server.tokens(document(2500, "lynx"))
    assert len(tokens) > 1500
    # What fits one token less than the context still gets one token.
    full = server.complete(tokens[:1023], 8)
    assert full.status == 200
    assert full.usage["completion_tokens"] == 1
    assert full.json["choices"][0]["finish_reason"] == "length"
    kept = server.complete(tokens[:900], 8)
    for length in (1024, 1025, 1500):
        for stream in (False, True):
            answer = server.complete(tokens[:length], 8, stream=stream)
            assert answer.status == 400
            assert answer.headers["Content-Type"] == "application/json"
            assert answer.error["code"] == "context_length_exceeded"
            assert str(length) in answer.error["message"]
            assert "1024" in answer.error["message"]
    again = server.complete(tokens[:900], 8)
    assert again.text == kept.text
    assert again.cached == 899


def test_a_chat_beyond_the_context_is_the_same_error(start):
    server = start("--ctx", "512")
    messages = question(2000, "lynx")
    for stream in (False, True):
        answer = server.chat(messages, stream=stream)
        assert answer.status == 400
        assert answer.error["code"] == "context_length_exceeded"
    server.assert_alive()


def test_a_namespace_sees_nothing_of_another(shared):
    messages = question(200, "mole")
    first = shared.chat(messages, cache_salt="one")
    assert shared.chat(messages, cache_salt="two").cached == 0
    # The common one may know the beginning that the template gives to every chat.
    assert shared.chat(messages).cached < BLOCK
    again = shared.chat(messages, cache_salt="one")
    assert again.cached == again.prompt_tokens - 1
    assert again.text == first.text


@pytest.mark.parametrize("body", [
    b"", b"{", b"[]", b"7", b"\xff\xfe", b'{"messages":[]}', b'{"messages":7}',
    b'{"messages":[{"role":"robot","content":"a"}]}',
    b'{"messages":[{"role":"user","content":"\\ud800"}]}',
    b'{"messages":[{"role":"user","content":"a"}],"max_tokens":1e18}',
    b'{"messages":[{"role":"user","content":"a"}],"temperature":NaN}',
    b"[" * 100000,
])
def test_a_wrong_body_is_the_clients_error(shared, body):
    answer = shared.request("POST", "/v1/chat/completions", body)
    assert answer.status == 400
    assert answer.error["type"] == "invalid_request_error"
    shared.assert_alive()


@pytest.mark.parametrize("text", ["A" * 100000, "7" * 50000, "\u00e9" * 50000, "\U0001f600" * 5000],
                         ids=["letters", "digits", "accents", "emoji"])
def test_a_long_run_of_one_kind_of_character_ends_nobody(shared, text):
    answer = shared.chat([{"role": "user", "content": text}], 1)
    assert answer.status == 400
    assert answer.error["message"]
    shared.assert_alive()


def test_pieces_of_a_stream_join_to_the_whole_text(shared):
    messages = question(100, "newt")
    whole = shared.chat(messages, 40)
    stream = shared.stream("/v1/chat/completions",
                           {"messages": messages, "max_tokens": 40, "temperature": 0,
                            "stream_options": {"include_usage": True}})
    events = list(stream.events())
    assert events[-1] == "[DONE]"
    chunks = [json.loads(event) for event in events[:-1]]
    text = "".join(chunk["choices"][0]["delta"].get("content", "")
                   for chunk in chunks if chunk["choices"])
    assert text == whole.text
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["completion_tokens"] == whole.usage["completion_tokens"]
    assert all(chunk["usage"] is None for chunk in chunks[:-1])


def test_a_stop_string_never_reaches_the_client(shared):
    prompt = document(100, "stoat")
    whole = shared.complete(prompt, 60).text
    stop = whole[20:26]
    expected = whole[:whole.index(stop)]
    answer = shared.complete(prompt, 60, stop=stop)
    assert answer.text == expected
    assert answer.json["choices"][0]["finish_reason"] == "stop"
    stream = shared.stream("/v1/completions", {"prompt": prompt, "max_tokens": 60,
                                               "temperature": 0, "stop": [stop]})
    assert "".join(stream.pieces()) == expected
    # Its beginning alone, at the very end, is text like any other.
    half = shared.complete(prompt, 60, stop=whole[-3:] + "\u2603")
    assert half.text == whole


def test_a_client_that_leaves_makes_room_for_the_next(start):
    server = start("--max-batch", "1")
    stream = server.stream("/v1/completions", {"prompt": "Rivers:", "max_tokens": 4000,
                                               "temperature": 0, "ignore_eos": True})
    next(stream.pieces())
    stream.close()
    assert server.complete("Mountains:", 4).text != ""
    assert server.stats()["requests"]["cancelled"] == 1
