"""The main job: a conversation goes on after the process has gone."""
import pytest

from everwarm import BLOCK, GEMMA, SMOL, copy_cache, question, until


def next_turn(messages, answer):
    return messages + [{"role": "assistant", "content": answer.text},
                       {"role": "user", "content": "And which shelf comes in line 3?"}]


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_the_next_turn_after_a_restart_is_the_one_it_would_have_been(start, end):
    server = start()
    first = question(600, "zebra")
    answer = server.chat(first)
    history = answer.prompt_tokens + answer.usage["completion_tokens"]
    turn = next_turn(first, answer)
    would_have_been = server.cold_chat(turn, 16)
    flush = server.flush()
    assert flush.status == 200, flush.body
    if end == "stop":
        assert server.stop() == 0
    else:
        server.kill()

    server = start()
    again = server.chat(turn, 16)
    assert again.text == would_have_been.text
    assert again.cached >= history - BLOCK
    assert again.from_ssd == again.cached
    # And once more, now from RAM.
    warm = server.chat(turn, 16)
    assert warm.text == would_have_been.text
    assert warm.cached == warm.prompt_tokens - 1
    assert warm.from_ssd == 0


def test_a_stop_alone_keeps_what_was_answered(start):
    server = start()
    messages = question(400, "zebra")
    answer = server.chat(messages)
    assert server.stop() == 0
    server = start()
    again = server.chat(messages)
    assert again.text == answer.text
    assert again.cached >= answer.prompt_tokens - BLOCK
    assert again.from_ssd > 0


@pytest.mark.parametrize("model", [SMOL, GEMMA], ids=["full", "window"])
def test_the_latest_conversation_is_in_ram_before_somebody_asks(start, model):
    server = start(model=model)
    first = question(600, "zebra")
    answer = server.chat(first)
    turn = next_turn(first, answer)
    assert server.flush().status == 200
    live = server.chat(turn, 16)
    server.kill()
    server = start("--preload", "256MiB", model=model)
    until(lambda: "conversations are in RAM" in server.log.read_text())
    assert server.stats()["cache"]["tokens_preloaded"] >= answer.prompt_tokens
    assert server.stats()["cache"]["lookups"] == 0
    again = server.chat(turn, 16)
    assert (again.text, again.from_ssd) == (live.text, 0)
    assert again.cached >= answer.prompt_tokens


def test_a_second_flush_writes_nothing_again(start):
    server = start()
    server.chat(question(300, "zebra"))
    first = server.flush()
    assert first.status == 200, first.body
    evidence = first.json
    assert evidence["durable"] is True
    assert evidence["entries"] > 0
    assert evidence["longest_durable_prefix_tokens"] > 0
    for name in ("pending", "pending_bytes", "failed", "dropped", "missing"):
        assert evidence[name] == 0
    second = server.flush()
    assert second.status == 200
    assert second.json["flushed"] == 0
    assert second.json["entries"] == evidence["entries"]


def test_without_a_cache_directory_a_flush_says_why_it_cannot(start):
    server = start(cache="off")
    server.chat(question(100, "zebra"))
    flush = server.flush()
    assert flush.status == 503
    assert flush.json["durable"] is False
    assert "SSD" in flush.json["reason"]
    assert server.stop() == 0


@pytest.mark.parametrize("model", [SMOL, GEMMA], ids=["full", "window"])
def test_a_turn_can_be_added_or_regenerated_after_a_restart(start, model, tmp_path):
    server = start(model=model)
    messages = question(500, "zebra")
    answers = []
    prompts = []
    for follow_up in ("Which line is last?", "Thank you. Anything else?", None):
        prompts.append(list(messages))
        answers.append(server.chat(messages, 12))
        messages.append({"role": "assistant", "content": answers[-1].text})
        if follow_up:
            messages.append({"role": "user", "content": follow_up})
    messages.append({"role": "user", "content": "Say the code word again."})
    assert server.flush().status == 200
    # What a kill at this moment leaves; the server that lives on tells what the answers are.
    copy_cache(server.cache_dir, tmp_path / "copy")
    fourth_live = server.chat(messages, 12)
    again_live = server.chat(prompts[-1], 12)
    assert server.stop() == 0

    server = start(model=model, cache=tmp_path / "copy")
    fourth = server.chat(messages, 12)
    assert fourth.text == fourth_live.text
    assert fourth.cached == fourth_live.cached
    third = answers[-1]
    history = third.prompt_tokens + third.usage["completion_tokens"]
    assert fourth.cached >= history - BLOCK
    again = server.chat(prompts[-1], 12)
    assert again.text == again_live.text
    if model == SMOL:
        # Its products do not depend on how many rows are computed at once.
        assert again.text == third.text
    # The last token is computed: its logits are the reply's beginning.
    assert again.cached == third.prompt_tokens - 1


@pytest.mark.parametrize("model, kv", [(SMOL, "q8"), (GEMMA, "turbo"), (SMOL, "q4+f16:64")],
                         ids=["full-q8", "window-turbo", "full-q4-behind-f16"])
def test_coded_keys_and_values_go_on_after_a_kill_and_no_other_codec_finds_them(start, model, kv, tmp_path):
    server = start("--kv", kv, model=model)
    messages = question(400, "zebra")
    messages = next_turn(messages, server.chat(messages, 12))
    assert server.flush().status == 200
    copy_cache(server.cache_dir, tmp_path / "copy")
    live = server.chat(messages, 16)
    server.kill()

    server = start("--kv", kv, model=model, cache=tmp_path / "copy")
    restored = server.chat(messages, 16)
    assert restored.text == live.text
    assert restored.from_ssd == restored.cached == live.cached > 0
    server.kill()

    server = start(model=model, cache=tmp_path / "copy")
    assert server.chat(messages, 1).cached == 0
