"""Models with recurrent layers: where states are left, what they save, and who sees them.

What all kinds of models promise of going back is in test_rewind.py.
"""
import concurrent.futures
import json

import pytest

import everwarm
import tiny_model
from everwarm import copy_cache, document, question

EVERY = 128
# What a template puts behind a prompt's last message, at most.
CUE = 16


@pytest.fixture(scope="module", params=["lfm2", "granitehybrid", "qwen35"])
def model(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / f"{request.param}.gguf"
    tiny_model.write(path, architecture=request.param)
    return str(path)


@pytest.fixture
def serve(start, model):
    return lambda *options, **more: start("--state-every", str(EVERY), *options, model=model, **more)


def digits(count):
    """A grammar. Digits are tokens of their own, so that a reply in a history is cut into the tokens that were written,
    whoever cuts it."""
    return {"max_tokens": count, "grammar": f"root ::= [0-9]{{{count}}}"}


def computed(answer):
    return answer.prompt_tokens - answer.cached


def turn(messages, answer, text):
    return messages + [{"role": "assistant", "content": answer.text}, {"role": "user", "content": text}]


class Talk:
    """A conversation whose turns are asked one after the other."""

    def __init__(self, server, tokens=400, turns=5):
        self.prompts = [question(tokens, "zebra")]
        for number in range(turns):
            answer = server.chat(self.prompts[-1], **digits(12))
            assert answer.status == 200, answer.body
            self.prompts.append(turn(self.prompts[-1], answer, f"What about item {number * 37}?"))


def test_a_fork_in_the_middle_gets_its_own_text(serve):
    server = serve()
    talk = Talk(server, turns=3)
    fork = talk.prompts[2][:-2] + [{"role": "assistant", "content": "I do not know."}, talk.prompts[2][-1]]
    for _ in range(2):
        answer = server.chat(fork, **digits(12))
        assert answer.exact == server.cold_chat(fork, **digits(12)).exact
    assert computed(answer) <= CUE


def test_a_server_that_was_copied_while_it_ran_answers_alike(serve, tmp_path):
    server = serve()
    talk = Talk(server, turns=3)
    assert server.flush().status == 200
    copy_cache(server.cache_dir, tmp_path / "copy")
    live = server.chat(talk.prompts[-1], **digits(24))
    server.kill()
    server = serve(cache=tmp_path / "copy")
    restored = server.chat(talk.prompts[-1], **digits(24))
    assert restored.exact == live.exact
    assert restored.cached == live.cached == restored.from_ssd


def test_a_change_in_a_long_prompt_costs_no_more_than_the_way_from_the_last_state(serve):
    server = serve()
    whole = server.tokens(document(2000, "zebra"))[:900]
    server.complete(whole)
    # So long that the place where it begins is not right before the prompt's last token.
    other = server.tokens(document(100, "river"))
    # So near the end that no state on the way was thinned.
    first = server.complete(whole[:890] + other)
    assert first.exact == server.cold_complete(whole[:890] + other).exact
    assert computed(first) <= EVERY + len(other)
    second = server.complete(whole[:890] + other[1:])
    assert second.exact == server.cold_complete(whole[:890] + other[1:]).exact
    assert computed(second) == len(other) - 1


def test_conversations_side_by_side_keep_their_own_states(serve):
    server = serve("--max-batch", "3")
    shared = document(300, "zebra")
    talks = [[{"role": "user", "content": f"{shared}\nQuestion {number}?"}] for number in range(4)]
    for _ in range(3):
        with concurrent.futures.ThreadPoolExecutor(len(talks)) as pool:
            answers = list(pool.map(lambda talk: server.chat(talk, **digits(10)), talks))
        for number, answer in enumerate(answers):
            assert answer.exact == server.cold_chat(talks[number], **digits(10)).exact
            talks[number] = turn(talks[number], answer, "And then?")


def test_states_are_told_apart_from_blocks(serve, cache_dir):
    server = serve()
    Talk(server, turns=2)
    stats = server.stats()
    assert stats["model"]["state_bytes"] > 0
    assert stats["ram_cache"]["cached_states"] > 0
    assert stats["ram_cache"]["published_states"] >= stats["ram_cache"]["cached_states"]
    assert server.stop() == 0
    listed = json.loads(everwarm.run("cache", "ls", "--json", "--cache-dir", str(cache_dir)).stdout)
    found = listed["models"][0]
    assert found["states"] > 0 and found["blocks"] > 0
    talk = max(found["conversations"], key=lambda conversation: conversation["tokens"])
    assert talk["states"] > 0
    assert talk["reachable_tokens"] == talk["tokens"]
    whole = everwarm.run("cache", "verify", "--cache-dir", str(cache_dir))
    assert whole.returncode == 0, whole.stdout


def test_an_odd_distance_between_states_is_refused(model, cache_dir):
    for odd in ("100", "32", "-1", "x"):
        result = everwarm.run("serve", model, "--port", "0", "--cache-dir", str(cache_dir), "--state-every", odd)
        assert result.returncode != 0
        assert "states every" in result.stderr or "--state-every" in result.stderr, result.stderr
