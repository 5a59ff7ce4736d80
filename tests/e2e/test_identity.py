"""What belongs to one model, tokenizer, template or setting is never used by another."""
import os
import shutil

import pytest

import everwarm
import tiny_model
from everwarm import question

MESSAGES = question(300, "zebra")
LIBRARY = os.environ.get("EVERWARM_REPLACED_FILE", str(everwarm.ROOT / "build/release/testing/libreplaced_file.so"))


def other_tokenizer():
    """Two words that do not occur in the question change places."""
    tokens = list(tiny_model.vocabulary()[tiny_model.TOKENS])
    first, second = tokens.index("\u0120giraffe") if "\u0120giraffe" in tokens else 40000, 40001
    tokens[first], tokens[second] = tokens[second], tokens[first]
    return {tiny_model.TOKENS: tokens}


def other_template():
    """Says the same about a question, by another text."""
    template = tiny_model.vocabulary()[tiny_model.TEMPLATE]
    return {tiny_model.TEMPLATE: template + "{# other #}"}


CHANGES = {
    "weights": lambda path: tiny_model.write(path, seed=2),
    "template": lambda path: tiny_model.write(path, changes=other_template()),
    "tokenizer": lambda path: tiny_model.write(path, changes=other_tokenizer()),
}


@pytest.fixture
def model(tmp_path, tiny):
    path = tmp_path / "model.gguf"
    shutil.copyfile(tiny, path)
    return path


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("in_place", [True, False], ids=["overwritten", "replaced"])
def test_a_changed_model_of_the_same_name_shares_nothing(start, model, tmp_path, change, in_place):
    server = start(model=model)
    reply = server.chat(MESSAGES).exact
    assert server.stop() == 0
    before = model.stat()
    original = model.read_bytes()
    changed = tmp_path / "changed.gguf"
    CHANGES[change](changed)
    if in_place:
        model.write_bytes(changed.read_bytes())
    else:
        changed.rename(model)
    # Nothing that a quick look would see.
    os.utime(model, ns=(before.st_atime_ns, before.st_mtime_ns))
    if change == "weights":
        assert model.stat().st_size == before.st_size
    server = start(model=model)
    other = server.chat(MESSAGES)
    assert other.cached == 0
    assert other.exact == server.cold_chat(MESSAGES).exact
    if change == "weights":
        assert other.exact != reply
    assert server.stop() == 0
    # The first one again finds its own.
    model.write_bytes(original)
    os.utime(model, ns=(before.st_atime_ns, before.st_mtime_ns))
    server = start(model=model)
    again = server.chat(MESSAGES)
    assert again.exact == reply
    assert again.from_ssd == again.prompt_tokens - 1


# Before each time that a start opens the file, and once after all of them.
@pytest.mark.parametrize("nth", range(1, 10))
def test_a_model_that_is_replaced_while_it_is_loaded_leaves_nothing_under_a_wrong_name(start, model, other_tiny, tmp_path, nth):
    replacement = tmp_path / "replacement.gguf"
    shutil.copyfile(other_tiny, replacement)
    environment = {"LD_PRELOAD": LIBRARY, "EVERWARM_REPLACED_PATH": str(model), "EVERWARM_REPLACED_BY": str(replacement),
                   "EVERWARM_REPLACED_AT": str(nth),
                   # A sanitizer's own library comes after this one.
                   "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"}
    try:
        server = start(model=model, environment=environment)
    except AssertionError as ended:
        refused = str(ended)
        assert "model.gguf changed while it was being loaded" in refused, refused
    else:
        refused = None
        server.chat(MESSAGES)
        assert server.stop() == 0
    assert (refused is None) == replacement.exists()
    # Whatever is kept, the file that lies there now gets its own text.
    server = start(model=model)
    assert server.chat(MESSAGES).text == server.cold_chat(MESSAGES).text


@pytest.mark.parametrize("how", ["moved", "copied", "linked"])
def test_a_model_that_lies_elsewhere_finds_its_own(start, model, tmp_path, how):
    server = start(model=model)
    reply = server.chat(MESSAGES).exact
    assert server.stop() == 0
    elsewhere = tmp_path / "elsewhere" / "renamed.gguf"
    elsewhere.parent.mkdir()
    if how == "moved":
        model.rename(elsewhere)
    elif how == "copied":
        shutil.copyfile(model, elsewhere)
    else:
        elsewhere.symlink_to(model)
    server = start(model=elsewhere)
    again = server.chat(MESSAGES)
    assert again.exact == reply
    assert again.from_ssd == again.prompt_tokens - 1


def test_a_cache_directory_that_was_moved_is_as_good(start, model, cache_dir, tmp_path):
    server = start(model=model)
    reply = server.chat(MESSAGES).exact
    assert server.stop() == 0
    cache_dir.rename(tmp_path / "moved")
    server = start(model=model, cache=tmp_path / "moved")
    again = server.chat(MESSAGES)
    assert again.exact == reply
    assert again.from_ssd == again.prompt_tokens - 1


@pytest.mark.parametrize("tokens", ["16", "128"])
def test_another_block_size_shares_nothing(start, model, tokens):
    server = start(model=model)
    reply = server.chat(MESSAGES).exact
    assert server.stop() == 0
    server = start("--block-tokens", tokens, model=model)
    other = server.chat(MESSAGES)
    assert other.cached == 0
    assert other.exact == reply
    assert server.stop() == 0
    server = start(model=model)
    assert server.chat(MESSAGES).from_ssd > 0


@pytest.mark.parametrize("kv", ["q8", "q4", "turbo:k8v3", "f16+q8:64"], ids=lambda kv: kv.replace(":", "-"))
def test_another_number_format_shares_nothing_and_harms_nothing(start, model, cache_dir, kv):
    server = start(model=model)
    reply = server.chat(MESSAGES).exact
    assert server.stop() == 0
    before = {path: path.read_bytes() for path in cache_dir.rglob("*.kv")}
    server = start("--kv", kv, model=model)
    other = server.chat(MESSAGES)
    assert other.cached == 0
    assert other.exact == server.cold_chat(MESSAGES).exact
    # The first one's files count against the cap, and stay.
    assert server.stats()["ssd_cache"]["bytes"] > sum(map(len, before.values()))
    assert server.stop() == 0
    assert {path: path.read_bytes() for path in before} == before
    server = start(model=model)
    again = server.chat(MESSAGES)
    assert again.exact == reply
    assert again.from_ssd == again.prompt_tokens - 1
