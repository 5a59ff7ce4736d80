"""A model with sliding windows: a longer prompt is never cut back wrongly."""
import pytest

from everwarm import BLOCK, GEMMA, document

# Gemma 3 270M's window, in tokens.
WINDOW = 512


def shelves():
    """A text that the model goes on with in only one way: a product of many rows differs in its last bits from one of a
    few with this file's K-quants, and where two tokens are as likely as each other that would show."""
    return "\n".join(f"Line {i}: box {i} is on shelf {i}, and its code word is zebra." for i in range(1, 140))


@pytest.fixture(scope="module")
def prompts(tmp_path_factory):
    """Prompts as token ids, with the text each gets from nothing."""
    import everwarm
    directory = tmp_path_factory.mktemp("cold")
    server = everwarm.Server(directory / "cache", model=GEMMA, log=directory / "server.log")
    whole = server.tokens(shelves())[:3 * WINDOW]
    assert len(whole) == 3 * WINDOW
    ask = server.tokens("\nLine 7: box 7 is on shelf")[1:]
    cases = [whole, whole[:2 * WINDOW] + ask, whole[:-1], whole[:WINDOW - 1], whole[:WINDOW],
             whole[:WINDOW + 1]]
    texts = [server.cold_complete(tokens).text for tokens in cases]
    server.close()
    return list(zip(cases, texts))


def test_every_prefix_of_a_cached_prompt_gets_its_own_text(start, prompts):
    server = start(model=GEMMA)
    for tokens, text in prompts:
        for _ in range(2):
            answer = server.complete(tokens)
            assert answer.text == text, f"{len(tokens)} tokens, {answer.cached} cached"
        assert answer.cached == len(tokens) - 1
    assert server.flush().status == 200
    server.kill()
    server = start(model=GEMMA)
    for tokens, text in prompts:
        answer = server.complete(tokens)
        assert answer.text == text, f"{len(tokens)} tokens, {answer.cached} cached"
        # All of them were asked before the kill, so each end is a resume point.
        assert answer.cached == len(tokens) - 1
    assert server.stats()["cache"]["tokens_from_ssd"] > 0


def test_window_layers_hold_their_window_and_two_blocks(start):
    """Although the prompt comes in steps of as many tokens as the window has, and its reply goes on in the next block."""
    server = start(model=GEMMA)
    tokens = server.tokens(document(4000, "otter"))[:4 * WINDOW - 9]
    answer = server.complete(tokens, 16)
    assert (answer.prompt_tokens, answer.cached) == (4 * WINDOW - 9, 0)
    assert answer.usage["completion_tokens"] == 16
    used = {group["name"]: group["used_bytes"] for group in server.stats()["ram_cache"]["groups"]}
    # 15 of 18 layers, one head of 256 for keys and for values, f16.
    assert 0 < used["window"] <= (WINDOW + 2 * BLOCK) * 15 * 2 * 256 * 2
    assert used["full"] > 4 * WINDOW * 3 * 2 * 256 * 2
