"""Sessions that outlive the server, and their removal."""
import hashlib
import json
import time

import pytest

import everwarm
from everwarm import BLOCK, document

SYSTEM = {"role": "system", "content": document(200, "common")}


def ask(server, session, *texts, header=False):
    """A conversation under the system prompt; the server's own replies are in it."""
    messages = [SYSTEM]
    for text in texts:
        messages.append({"role": "user", "content": text})
        more = {} if header else {"session_id": session}
        headers = {"X-Session-Affinity": session} if header else None
        answer = server.request("POST", "/v1/chat/completions",
                                {"messages": messages, "max_tokens": 8, "temperature": 0, **more}, headers)
        messages.append({"role": "assistant", "content": answer.text})
    return answer


def records(cache_dir):
    return sorted(cache_dir.rglob("*.session"))


def rm(cache_dir, *options):
    return everwarm.run("cache", "rm", "--cache-dir", str(cache_dir), *options)


@pytest.fixture
def filled(start, cache_dir):
    """Two sessions and nobody's conversation, all with the same beginning."""
    server = start()
    ask(server, "agent-seven", document(150, "zebra"), "And then?")
    ask(server, "agent-eight", document(150, "walrus"), "And then?", header=True)
    server.chat([SYSTEM, {"role": "user", "content": document(150, "otter")}])
    assert server.stats()["ram_cache"]["sessions"] == 2
    assert server.stop() == 0
    return cache_dir


def test_sessions_are_known_again_after_a_stop_and_after_a_kill(start, filled):
    server = start()
    assert server.stats()["ram_cache"]["sessions"] == 2
    ask(server, "agent-nine", document(150, "lynx"))
    assert server.flush().status == 200
    server.kill()
    assert start().stats()["ram_cache"]["sessions"] == 3


def test_cache_ls_shows_sessions_without_their_names(filled):
    listed = everwarm.run("cache", "ls", "--cache-dir", str(filled), "--json")
    assert listed.returncode == 0, listed.stderr
    sessions = json.loads(listed.stdout)["models"][0]["sessions"]
    hashes = {hashlib.sha256(b"everwarm-session-1" + name).hexdigest() for name in (b"agent-seven", b"agent-eight")}
    assert {session["id_hash"] for session in sessions} == hashes
    for session in sessions:
        assert session["tokens"] > 150 and session["conversations"] == 1 and not session["closed"]
        assert abs(session["last_used"] - time.time()) < 600
    text = everwarm.run("cache", "ls", "--cache-dir", str(filled)).stdout
    assert all(f"  {digits[:12]} " in text for digits in hashes)
    assert "agent" not in text + listed.stdout


def test_records_are_private_and_hold_no_name(filled):
    assert records(filled)
    for path in records(filled):
        assert path.stat().st_mode & 0o777 == 0o600
    for path in filled.rglob("*"):
        assert "agent" not in path.name
        if path.is_file():
            assert b"agent-" not in path.read_bytes(), path


def test_what_a_session_replaces_is_not_left_behind(start, filled):
    before = len(records(filled))
    server = start()
    answer = ask(server, "agent-seven", document(150, "zebra"), "And then?", "And after that?")
    assert answer.cached > 2 * BLOCK
    assert server.stop() == 0
    assert len(records(filled)) <= before + 1


def test_verify_reads_records_and_finds_a_damaged_one(filled):
    result = everwarm.run("cache", "verify", "--cache-dir", str(filled))
    assert result.returncode == 0, result.stdout
    assert f" and {len(records(filled))} sessions" in result.stdout
    path = records(filled)[0]
    path.write_bytes(path.read_bytes()[:200] + b"\xff" * 8 + path.read_bytes()[208:])
    result = everwarm.run("cache", "verify", "--cache-dir", str(filled))
    assert result.returncode == 4
    assert f"damaged: {path}: " in result.stdout


def test_a_damaged_record_loses_the_preference_and_nothing_else(start, filled):
    for path in records(filled):
        path.write_bytes(path.read_bytes()[:100])
    server = start()
    assert server.stats()["ram_cache"]["sessions"] == 0
    answer = ask(server, "agent-seven", document(150, "zebra"))
    assert answer.cached > 2 * BLOCK
    assert server.stop() == 0


def test_rm_of_a_session_takes_only_what_nobody_shares(start, filled):
    server = start()
    shared = server.cold_chat([SYSTEM, {"role": "user", "content": "x"}]).prompt_tokens
    assert server.stop() == 0
    result = rm(filled, "--session", "agent-seven")
    assert result.returncode == 0, result.stderr
    server = start()
    assert server.stats()["ram_cache"]["sessions"] == 1
    mine = ask(server, "", document(150, "zebra"))
    # What all begin with is there, and no more.
    assert mine.cached <= shared
    assert mine.cached >= shared - 2 * BLOCK
    others = ask(server, "", document(150, "walrus"))
    assert others.cached == others.prompt_tokens - 1 or others.cached > shared + BLOCK
    nobodys = server.chat([SYSTEM, {"role": "user", "content": document(150, "otter")}])
    assert nobodys.cached > shared + BLOCK


def test_a_closed_session_stays_closed_and_can_still_be_removed(start, cache_dir):
    server = start()
    ask(server, "agent-seven", document(150, "zebra"))
    closed = server.request("POST", "/admin/cache/session/close", {"session_id": "agent-seven"})
    assert closed.status == 200
    assert server.flush().status == 200
    assert server.stop() == 0
    server = start()
    assert server.stats()["ram_cache"]["sessions"] == 0
    assert server.stop() == 0
    assert rm(cache_dir, "--session", "agent-seven").returncode == 0
    assert records(cache_dir) == []
    assert list(cache_dir.rglob("*.kv")) == []


def test_rm_of_a_session_says_clearly_what_is_wrong(start, filled):
    for options, word in ((("--session", "nobody"), "no session"), (("--session", ""), "--session"),
                          (("--session", "agent-seven", "--all"), "--session")):
        result = rm(filled, *options)
        assert result.returncode in (1, 2), options
        assert len(result.stderr.splitlines()) == 1 and word in result.stderr, result.stderr
    server = start()
    result = rm(filled, "--session", "agent-seven")
    assert result.returncode == 1 and "in use" in result.stderr
    server.assert_alive()
