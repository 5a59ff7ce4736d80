"""Replies that come back in a history keep the tokens that they were generated as."""
from everwarm import question


def turns(server, seeds):
    """First turns at a temperature where the tokenizer would cut many replies otherwise, each with its next turn."""
    found = []
    for seed in seeds:
        messages = question(120, f"word {seed}")
        answer = server.chat(messages, 40, temperature=1.5, top_k=0, min_p=0, top_p=1, seed=seed)
        if "\ufffd" in answer.text:
            continue  # bytes that are no text do not come back as they were
        tokens = answer.usage["completion_tokens"]
        computed = answer.prompt_tokens + tokens - 1
        history = messages + [{"role": "assistant", "content": answer.text}, {"role": "user", "content": "Go on."}]
        # The end of the reply is a token without text.
        written = tokens - (answer.json["choices"][0]["finish_reason"] == "stop")
        found.append((history, computed, written))
    assert len(found) >= 4
    return found


def test_the_next_turn_reuses_a_reply_to_its_last_token_also_after_a_restart(start):
    server = start()
    conversations = turns(server, range(10))
    canonical = [len(server.request("POST", "/tokenize", {"content": history[1]["content"]}).json["tokens"])
                 for history, _, _ in conversations]
    assert canonical != [written for _, _, written in conversations], "the tokenizer agrees with all: nothing is shown"
    assert server.flush().status == 200
    for history, computed, _ in conversations[::2]:
        assert server.chat(history, 1).cached == computed
    assert server.stop() == 0
    server = start()
    for history, computed, _ in conversations:
        answer = server.chat(history, 4)
        assert answer.cached >= computed


def test_an_edited_reply_is_answered_like_any_other_text(start):
    server = start()
    for history, computed, _ in turns(server, range(6)):
        history[1]["content"] = "xyz" + history[1]["content"][3:]
        answer = server.chat(history, 6)
        assert answer.cached < computed
        assert answer.text == server.cold_chat(history, 6).text
