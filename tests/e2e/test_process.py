"""The process: options, files it cannot use, ports, and how it ends."""
import dataclasses
import os
import pathlib
import re
import resource
import shutil
import signal
import socket
import subprocess
import time

import pytest

import everwarm
import tiny_model
from everwarm import SMOL, question


# One that this process may run on.
CPU = min(os.sched_getaffinity(0))


def assert_one_clear_line(result, *words):
    assert result.returncode not in (0, None)
    # Not by a signal.
    assert result.returncode > 0, result.stderr
    lines = [line for line in result.stderr.splitlines() if line.startswith("everwarm: ")]
    assert len(lines) == 1, result.stderr
    for word in words:
        assert word in lines[0], result.stderr


@pytest.mark.parametrize("options, word", [
    (["--nonsense", "1"], "nonsense"),
    (["--ctx", "many"], "--ctx"),
    (["--ctx", "0"], "--ctx"),
    (["--ram-cache", "4 bananas"], "--ram-cache"),
    (["--block-tokens", "63"], "--block-tokens"),
    (["--kv", "f64"], "--kv"),
    (["--state-every", "100"], "--state-every: 100 is not a power of two"),
    (["--state-every", "32"], "--state-every: 32"),
    (["--kv", "q4+f16:0"], "--kv"),
    (["--kv", "q4+q4:64"], "so are all others"),
    (["--port", "70000"], "port"),
    (["--shutdown-timeout", "soon"], "--shutdown-timeout"),
    (["--shutdown-timeout", "999999d"], "--shutdown-timeout"),
    (["--durable-wait", "36501d"], "--durable-wait"),
    (["--api-key", ""], "--api-key"),
    (["--host", "192.0.2.1", "--api-key", "k"], "192.0.2.1"),
    (["--host", "0.0.0.0"], "--api-key"),
    (["--host", "::"], "--api-key"),
    (["--host", "127.example.com"], "--api-key"),
], ids=lambda value: "-".join(value).strip("-").replace(" ", "-") if isinstance(value, list) else "")
def test_a_bad_option_is_one_clear_line(tmp_path, options, word):
    result = everwarm.run("serve", SMOL, "--port", "0", "--cache-dir", str(tmp_path / "cache"), *options)
    assert_one_clear_line(result, word)


def test_a_missing_argument_is_one_clear_line():
    assert_one_clear_line(everwarm.run("serve"), "MODEL")
    assert_one_clear_line(everwarm.run("fly"))
    assert_one_clear_line(everwarm.run())


def test_help_is_complete_and_no_error():
    for command in (["--help"], ["serve", "--help"], ["run", "--help"], ["cache", "--help"]):
        result = everwarm.run(*command)
        assert result.returncode == 0
        assert result.stdout
    assert "--cache-dir" in everwarm.run("serve", "--help").stdout


def serve_file(tmp_path, model):
    return everwarm.run("serve", str(model), "--port", "0", "--cache-dir", str(tmp_path / "cache"))


def test_a_model_that_is_not_there_is_one_clear_line(tmp_path):
    assert_one_clear_line(serve_file(tmp_path, tmp_path / "none.gguf"), "none.gguf")
    assert_one_clear_line(serve_file(tmp_path, tmp_path))


@pytest.mark.parametrize("content", [b"", b"GGUF", b"hello world" * 1000, b"GGUF\x03\0\0\0" + b"\xff" * 64,
                                     b"\0" * 100000], ids=["empty", "magic", "text", "counts", "zeros"])
def test_a_broken_model_is_one_clear_line(tmp_path, content):
    path = tmp_path / "broken.gguf"
    path.write_bytes(content)
    assert_one_clear_line(serve_file(tmp_path, path), "broken.gguf")


@pytest.mark.parametrize("share", [0.001, 0.02, 0.5, 0.9999], ids=str)
def test_a_model_that_was_cut_is_one_clear_line(tmp_path, share):
    path = tmp_path / "cut.gguf"
    shutil.copyfile(SMOL, path)
    os.truncate(path, int(path.stat().st_size * share))
    assert_one_clear_line(serve_file(tmp_path, path), "cut.gguf")


@pytest.mark.parametrize("architecture", tiny_model.ARCHITECTURES)
def test_a_damaged_model_of_any_architecture_is_one_clear_line(tmp_path, architecture):
    path = tmp_path / "damaged.gguf"
    tiny_model.write(path, architecture=architecture)
    whole = path.read_bytes()
    for content, word in ((whole[:-1000], "cut short"), (whole.replace(b"blk.0.attn_norm.", b"blk.0.attn_mron."), "blk.0.attn_norm.weight")):
        path.write_bytes(content)
        assert_one_clear_line(serve_file(tmp_path, path), "damaged.gguf", word)


def test_a_model_of_recurrent_layers_alone_is_one_clear_line(tmp_path, monkeypatch):
    shape, add_layers = tiny_model.ARCHITECTURES["lfm2"]
    monkeypatch.setitem(tiny_model.ARCHITECTURES, "lfm2", (dataclasses.replace(shape, layers=1), add_layers))
    path = tmp_path / "recurrent.gguf"
    tiny_model.write(path, architecture="lfm2")
    assert_one_clear_line(serve_file(tmp_path, path), "recurrent.gguf", "1 layers is recurrent")


def test_a_busy_port_is_one_clear_line(tmp_path):
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        port = busy.getsockname()[1]
        result = everwarm.run("serve", SMOL, "--cache-dir", str(tmp_path / "cache"), "--port", str(port))
    assert_one_clear_line(result, str(port), "in use")


def test_a_cache_directory_that_cannot_be_used_is_one_clear_line(tmp_path):
    file = tmp_path / "file"
    file.write_text("not a directory")
    for path in (file, file / "below", pathlib.Path("/proc/everwarm")):
        result = everwarm.run("serve", SMOL, "--port", "0", "--cache-dir", str(path))
        assert_one_clear_line(result, str(path))
    assert file.read_text() == "not a directory"


@pytest.mark.parametrize("options, words", [
    (("--cpus", "0-x"), "'0-x' is neither a CPU's number nor a range"),
    (("--cpus", "4000"), "may not run on CPU 4000"),
    (("--cpus", str(CPU), "--threads", "2"), f"--threads 2 is more than --cpus {CPU} has: 1")],
                         ids=["text", "absent", "few"])
def test_cpus_that_cannot_be_had_are_one_clear_line(tmp_path, options, words):
    result = everwarm.run("serve", SMOL, "--port", "0", "--cache-dir", str(tmp_path / "cache"), *options)
    assert_one_clear_line(result, words)


def test_threads_stay_on_the_cpus_they_were_given(start):
    server = start("--cpus", str(CPU))
    server.assert_alive()
    tasks = pathlib.Path(f"/proc/{server.process.pid}/task")
    placed = [os.sched_getaffinity(int(task.name)) for task in tasks.iterdir()]
    assert {CPU} in placed


def test_a_second_server_on_the_same_directory_is_refused(start, cache_dir):
    server = start()
    result = everwarm.run("serve", SMOL, "--port", "0", "--cache-dir", str(cache_dir))
    assert_one_clear_line(result, str(cache_dir))
    server.assert_alive()


def test_a_stop_lets_a_running_reply_finish(start):
    server = start("--shutdown-timeout", "100s")
    stream = server.stream("/v1/completions", {"prompt": "Rivers:", "max_tokens": 30,
                                               "temperature": 0, "ignore_eos": True})
    pieces = stream.pieces()
    text = next(pieces)
    server.signal(signal.SIGTERM)
    text += "".join(pieces)
    assert server.wait() == 0
    server = start()
    assert server.complete("Rivers:", 30, ignore_eos=True).text == text


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["term", "int"])
def test_a_reply_that_would_take_too_long_is_cut_and_does_not_look_whole(start, number):
    server = start("--shutdown-timeout", "1s")
    stream = server.stream("/v1/chat/completions",
                           {"messages": question(100, "zebra"), "max_tokens": 3000,
                            "temperature": 0, "ignore_eos": True})
    events = stream.events()
    next(events)
    next(events)
    server.signal(number)
    rest = list(events)
    assert "[DONE]" not in rest
    assert "error" in rest[-1]
    assert server.wait() == 0
    # What was computed before is there.
    server = start()
    assert server.chat(question(100, "zebra")).from_ssd > 0


def test_a_second_signal_cuts_the_reply_and_still_keeps_what_is_computed(start):
    server = start("--shutdown-timeout", "100s")
    messages = question(100, "zebra")
    stream = server.stream("/v1/chat/completions", {"messages": messages, "max_tokens": 3000,
                                                    "temperature": 0, "ignore_eos": True})
    events = stream.events()
    next(events)
    next(events)
    server.signal(signal.SIGTERM)
    next(events)
    # The first is seen within a tick; two that come together count once.
    deadline = time.monotonic() + 60
    while server.process.poll() is None and time.monotonic() < deadline:
        server.signal(signal.SIGTERM)
        time.sleep(0.2)
    assert server.wait() == 0
    assert "[DONE]" not in list(events)
    server = start()
    assert server.chat(messages).from_ssd > 0


def test_a_waiting_client_is_told_when_the_server_stops(start):
    server = start("--shutdown-timeout", "1s")
    stream = server.stream("/v1/completions", {"prompt": "Rivers:", "max_tokens": 3000,
                                               "temperature": 0, "ignore_eos": True})
    next(stream.pieces())
    server.signal(signal.SIGTERM)
    while server.process.poll() is None:
        try:
            answer = server.complete("Mountains:", 4)
        except (ConnectionError, OSError):
            break
        if answer.status == 200:
            continue  # the signal was not seen yet
        assert answer.status == 503
        assert answer.error["message"]
    assert server.wait() == 0


def test_cache_ls_shows_what_a_directory_keeps(start, cache_dir):
    server = start()
    server.chat(question(200, "zebra"))
    assert server.stop() == 0
    result = everwarm.run("cache", "ls", "--cache-dir", str(cache_dir))
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip()
    empty = everwarm.run("cache", "ls", "--cache-dir", str(cache_dir / "none"))
    assert empty.returncode >= 0


def without_large_files():
    """Writes of more than a page fail."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))


def test_run_says_by_its_code_that_not_all_is_on_the_disk(tiny, cache_dir):
    command = (everwarm.BINARY, "run", tiny, "-p", "Name a river.", "--max-tokens", "8", "--cache-dir", str(cache_dir))
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, env=everwarm.clean_environment(),
                            preexec_fn=without_large_files)
    assert result.returncode == 3, result.stderr
    assert result.stdout.strip()
    assert re.search(r"not everything is on the disk: .* [1-9]\d* failed", result.stderr), result.stderr
    assert everwarm.run(*command[1:]).returncode == 0


def test_run_answers_and_finds_its_prompt_again(cache_dir):
    arguments = ("run", SMOL, "-p", "Name a river.", "--max-tokens", "8", "--temperature", "0",
                 "--cache-dir", str(cache_dir))
    first = everwarm.run(*arguments)
    assert first.returncode == 0, first.stderr
    assert first.stdout.strip()
    again = everwarm.run(*arguments)
    assert again.stdout == first.stdout
