"""What is promised to be on the disk, and how a server that stops keeps its word."""
import signal
import subprocess

import pytest

import everwarm
from everwarm import question, until

WAIT = {"X-Everwarm-Wait-Durable": "1"}


def break_disk(cache_dir):
    """Puts a file where the blocks' directory was, so that no block can be written."""
    directory = next(path for path in cache_dir.iterdir() if path.is_dir() and len(path.name) == 64)
    directory.rename(cache_dir / "moved")
    directory.write_text("in the way")
    return directory


def mend_disk(cache_dir, directory):
    directory.unlink()
    (cache_dir / "moved").rename(directory)


def ask_endlessly(server, words="zebra"):
    return server.stream("/v1/chat/completions", {"messages": question(100, words), "max_tokens": 3000,
                                                  "temperature": 0, "ignore_eos": True})


def test_what_a_reply_calls_durable_survives_a_kill(start):
    server = start()
    prompt = server.tokens(everwarm.document(300, "zebra"))
    answer = server.request("POST", "/v1/completions",
                            {"prompt": prompt, "max_tokens": 20, "temperature": 0, "ignore_eos": True}, WAIT)
    server.kill()
    durable = answer.usage["everwarm"]["durable_tokens"]
    # The last token was never computed.
    assert durable == len(prompt) + 19
    server = start()
    again = server.complete(prompt, 20, ignore_eos=True)
    assert again.text == answer.text
    assert again.from_ssd == len(prompt) - 1


def test_the_last_chunk_of_a_stream_says_what_is_durable(start):
    server = start()
    stream = server.stream("/v1/completions", {"prompt": everwarm.document(200, "zebra"), "max_tokens": 8,
                                               "stream_options": {"include_usage": True}}, headers=WAIT)
    last = [event for event in stream.events() if event != "[DONE]"][-1]
    usage = everwarm.json.loads(last)["usage"]
    assert usage["everwarm"]["durable_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"] - 1
    until(lambda: server.stats()["cache"]["durable_tokens"] == usage["everwarm"]["durable_tokens"])


def test_a_disk_that_refuses_is_never_called_durable(start, cache_dir):
    server = start()
    assert server.flush().status == 200
    directory = break_disk(cache_dir)
    answer = server.request("POST", "/v1/chat/completions",
                            {"messages": question(200, "zebra"), "max_tokens": 4}, WAIT)
    assert answer.status == 200
    assert answer.usage["everwarm"]["durable_tokens"] == 0
    flush = server.flush()
    assert flush.status == 503
    assert flush.json["durable"] is False
    assert flush.json["failed"] > 0
    assert flush.json["reason"]
    # It is served from RAM meanwhile, written when the disk is back, and then durable.
    assert server.chat(question(200, "zebra")).cached > 0
    mend_disk(cache_dir, directory)
    assert server.flush().status == 200
    assert server.stop() == 0


def test_a_stop_that_cannot_write_says_what_is_lost(start, cache_dir):
    server = start()
    break_disk(cache_dir)
    server.chat(question(200, "zebra"))
    assert server.stop() == 3
    last = server.log_text().strip().splitlines()[-1]
    assert "not everything is on the disk" in last
    assert "failed" in last


def test_health_says_stopping_while_a_reply_goes_on(start):
    server = start("--shutdown-timeout", "100s")
    stream = ask_endlessly(server)
    pieces = stream.pieces()
    next(pieces)
    assert server.request("GET", "/health").status == 200
    server.signal(signal.SIGTERM)
    until(lambda: server.request("GET", "/health").status == 503)
    assert server.request("GET", "/health").json == {"status": "stopping"}
    refused = server.complete("Rivers:")
    assert refused.status == 503
    assert refused.error["code"] == "stopping"
    # The one that runs goes on.
    next(pieces)
    server.signal(signal.SIGTERM)
    assert server.wait() == 0


def test_a_signal_while_the_model_is_loaded_ends_it_at_once(tmp_path):
    process = subprocess.Popen([everwarm.BINARY, "serve", everwarm.SMOL, "--port", "0", "--cache-dir",
                                str(tmp_path / "cache")], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               env=everwarm.clean_environment())
    # The first line is logged while it loads; what comes earlier ends it as it ends any program.
    process.stderr.readline()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 0


def test_a_drain_empties_ram_and_loses_nothing(start):
    server = start()
    first = server.chat(question(300, "zebra"))
    drained = server.request("POST", "/admin/drain")
    assert drained.status == 200
    assert drained.json["durable"] is True
    assert drained.json["demoted_blocks"] > 0
    assert server.stats()["ram_cache"]["cached_blocks"] == 0
    again = server.chat(question(300, "zebra"))
    assert again.text == first.text
    assert again.from_ssd == again.prompt_tokens - 1
    assert server.request("POST", "/admin/drain").json["flushed"] >= 0


def test_idle_blocks_leave_ram_and_come_back(start):
    server = start("--demote-idle", "1s")
    first = server.chat(question(200, "zebra"))
    until(lambda: server.stats()["ram_cache"]["cached_blocks"] == 0)
    assert server.stats()["ram_cache"]["lost_blocks"] == 0
    again = server.chat(question(200, "zebra"))
    assert again.text == first.text
    assert again.from_ssd > 0


@pytest.mark.parametrize("options", [["--ram-hard-cap", "1MiB"], ["--demote-idle", "often"],
                                     ["--ssd-min-free", "some"], ["--durable-wait", "-1"]],
                         ids=lambda options: options[0].strip("-"))
def test_a_bad_limit_is_one_clear_line(tmp_path, options):
    result = everwarm.run("serve", everwarm.SMOL, "--port", "0", "--cache-dir", str(tmp_path / "cache"), *options)
    assert result.returncode == 2
    lines = [line for line in result.stderr.splitlines() if line.startswith("everwarm: ")]
    assert len(lines) == 1 and options[0] in lines[0]
