"""A disk that is slow, and one that does not answer, as the real server sees them."""
import os
import re
import time

import pytest

import everwarm
from everwarm import question

LIBRARY = os.environ.get("EVERWARM_STALLED_DISK", str(everwarm.ROOT / "build/release/testing/libstalled_disk.so"))
WORDS = ("zebra", "otter", "heron", "lynx", "tapir", "newt")


@pytest.fixture
def slow(start, tiny, tmp_path, cache_dir):
    """Starts a server each of whose calls to the disk takes so many seconds; returns it and the switch that makes them."""
    def start_slow(seconds, *options):
        switch = tmp_path / "stall"
        environment = {"LD_PRELOAD": LIBRARY, "EVERWARM_STALL_DIR": str(cache_dir), "EVERWARM_STALL_SECONDS": str(seconds),
                       "EVERWARM_STALL_WHILE": str(switch), "EVERWARM_STALL_COUNT": str(tmp_path / "stalled"),
                       # A sanitizer's own library comes after this one.
                       "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"}
        server = start(*options, model=tiny, environment=environment)
        # What a start writes is not meant.
        switch.touch()
        return server, switch
    return start_slow


def conversations(count):
    return [question(150, f"{WORDS[i % len(WORDS)]} {i}") for i in range(count)]


def test_a_stop_waits_until_a_slow_disk_has_everything(start, slow, tiny, tmp_path):
    server, _ = slow(0.02)
    cases = conversations(30)
    replies = [server.chat(messages).exact for messages in cases]
    assert server.stats()["ssd_cache"]["pending_stores"] > 0
    assert server.stop() == 0
    assert (tmp_path / "stalled").stat().st_size > 100
    server = start(model=tiny)
    for messages, reply in zip(cases, replies):
        answer = server.chat(messages)
        assert answer.exact == reply
        assert answer.from_ssd == answer.prompt_tokens - 1


def test_a_stop_that_is_cut_short_has_kept_the_newest_and_counts_the_rest(start, slow, tiny):
    # The disk gets ten seconds at least, in which it answers some hundred calls: half of what there is to do.
    server, _ = slow(0.03, "--shutdown-timeout", "1s")
    cases = conversations(80)
    replies = [server.chat(messages).exact for messages in cases]
    code = server.stop()
    assert code not in (0, None) and code > 0
    assert re.search(r"not everything is on the disk: [1-9]\d* blocks", server.log_text()), server.log_text()
    server = start(model=tiny)
    newest = server.chat(cases[-1])
    assert newest.exact == replies[-1]
    assert newest.from_ssd == newest.prompt_tokens - 1
    found = [server.chat(messages).from_ssd > everwarm.BLOCK for messages in cases]
    assert not all(found)


def test_replies_go_on_while_the_disk_does_not_answer(start, slow, tiny):
    server, switch = slow(30, "--durable-wait", "1s")
    cases = conversations(6)
    began = time.monotonic()
    replies = [server.chat(messages, 20).exact for messages in cases]
    again = server.chat(cases[0], 20)
    assert again.exact == replies[0]
    assert again.cached == again.prompt_tokens - 1
    waited = server.request("POST", "/v1/chat/completions", {"messages": cases[1], "max_tokens": 2, "temperature": 0},
                            {"X-Everwarm-Wait-Durable": "1"})
    assert waited.status == 200
    assert waited.usage["everwarm"]["durable_tokens"] == 0
    assert server.stats()["ssd_cache"]["stored"] == 0
    assert time.monotonic() - began < 30
    switch.unlink()
    assert server.flush().status == 200
    server.kill()
    server = start(model=tiny)
    for messages, reply in zip(cases, replies):
        answer = server.chat(messages, 20)
        assert answer.exact == reply
        assert answer.from_ssd == answer.prompt_tokens - 1


def test_whoever_waits_for_a_disk_that_does_not_answer_is_computed_instead(start, slow, tiny):
    server = start(model=tiny)
    stored, other = conversations(2)
    replies = [server.chat(messages, 20).exact for messages in (stored, other)]
    assert server.flush().status == 200
    assert server.stop() == 0
    # A minute for each call, and both begin with blocks that are on the disk.
    server, switch = slow(60)
    began = time.monotonic()
    first = server.chat(stored, 20)
    waited = time.monotonic() - began
    assert first.exact == replies[0]
    assert first.from_ssd == 0
    assert 4 < waited < 30
    began = time.monotonic()
    second = server.chat(other, 20)
    assert second.exact == replies[1]
    assert time.monotonic() - began < waited
    assert server.stats()["cache"]["requests_without_ssd"] == 2
    assert "the disk does not answer" in server.log_text()
    switch.unlink()
    # The reads come at last, and hurt nobody.
    assert server.chat(stored, 20).exact == replies[0]
    assert server.stop() == 0


def test_a_stop_does_not_wait_for_a_disk_that_never_answers(start, slow, tiny, cache_dir):
    server, _ = slow(3600, "--shutdown-timeout", "4s")
    for messages in conversations(4):
        server.chat(messages)
    assert server.stats()["ssd_cache"]["pending_stores"] > 0
    began = time.monotonic()
    # The disk has ten seconds at least.
    assert server.stop() == 3
    assert time.monotonic() - began < 30
    assert re.search(r"not everything is on the disk: [1-9]\d* blocks", server.log_text()), server.log_text()
    # What it leaves is no hindrance.
    server = start(model=tiny)
    server.assert_alive()
    assert server.stop() == 0


def test_a_stop_does_not_wait_for_reads_that_never_return(start, slow, tiny):
    server = start(model=tiny)
    messages = conversations(1)[0]
    server.chat(messages)
    assert server.stop() == 0
    server, switch = slow(3600, "--shutdown-timeout", "4s")
    assert server.chat(messages).from_ssd == 0
    began = time.monotonic()
    # All is on the disk; only the read is left.
    assert server.stop() == 0
    assert time.monotonic() - began < 30
    assert "it is not waited for" in server.log_text()
    assert switch.exists()


def test_a_stop_ends_within_its_time_also_with_a_reply_that_runs(slow):
    server, _ = slow(3600, "--shutdown-timeout", "22s")
    stream = server.stream("/v1/completions", {"prompt": "Rivers:", "max_tokens": 1_000_000, "ignore_eos": True})
    next(stream.events())
    began = time.monotonic()
    assert server.stop() == 3
    # It is cut after twelve, and the disk has the rest.
    assert 11 < time.monotonic() - began < 26
    stream.close()
