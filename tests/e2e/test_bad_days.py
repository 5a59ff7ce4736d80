"""Disks that fill, directories that turn read-only, files that are removed, cut, swapped and changed under the
running server: never a wrong text, never a crash, and nothing acknowledged is lost."""
import contextlib
import os
import pathlib
import shutil
import stat
import subprocess
import threading

import pytest

import everwarm
from everwarm import cache_files, question

WORDS = ("zebra", "otter", "heron", "lynx", "tapir", "newt", "ibis", "mole", "crane", "stoat")


@pytest.fixture(scope="module")
def asked(tmp_path_factory, tiny):
    """Questions, and the reply that each gets from nothing."""
    directory = tmp_path_factory.mktemp("cold")
    server = everwarm.Server("off", model=tiny, log=directory / "server.log")
    cases = [(question(700, word), server.cold_chat(question(700, word)).exact) for word in WORDS]
    server.close()
    # Else one could be served what is another's, and nobody would see it.
    assert len({reply for _, reply in cases}) == len(cases)
    return cases


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 8 MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(place)],
                             capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"a file system of 8 MiB cannot be mounted: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def check_all(server, asked):
    for messages, reply in asked:
        assert server.chat(messages).exact == reply


def test_a_full_disk_fails_the_flush_and_loses_nothing(start, tiny, asked, small_disk):
    filler = small_disk / "filler"
    # No block fits, so none is evicted for another: that would be no loss.
    filler.write_bytes(bytes((8 << 20) - (100 << 10)))
    server = start(model=tiny, cache=small_disk / "cache")
    check_all(server, asked)
    check_all(server, asked)
    flush = server.flush()
    assert flush.status == 503
    assert flush.json["durable"] is False
    assert flush.json["failed"] > 0
    assert flush.json["dropped"] == flush.json["missing"] == 0
    check_all(server, asked)
    filler.unlink()
    flush = server.flush()
    assert flush.status == 200, flush.body
    assert flush.json["flushed"] > 0
    server.kill()
    server = start(model=tiny, cache=small_disk / "cache")
    for messages, reply in asked:
        answer = server.chat(messages)
        assert answer.exact == reply
        assert answer.cached == answer.prompt_tokens - 1
    assert not list((small_disk / "cache").rglob("tmp-*"))


def test_a_disk_that_is_too_small_keeps_what_it_can(start, tiny, asked, small_disk):
    (small_disk / "filler").write_bytes(bytes(5 << 20))
    server = start("--ram-cache", "0", model=tiny, cache=small_disk / "cache")
    for _ in range(3):
        check_all(server, asked)
    server.assert_alive()
    assert server.stats()["ssd_cache"]["evicted"] > 0
    server.stop()
    server = start(model=tiny, cache=small_disk / "cache")
    check_all(server, asked)


def test_a_directory_that_becomes_read_only_is_out_of_the_way(start, tiny, asked, cache_dir):
    server = start(model=tiny)
    check_all(server, asked[:2])
    assert server.flush().status == 200
    own = next(path for path in cache_dir.iterdir() if path.is_dir())
    # Also for root.
    if subprocess.run(["chattr", "+i", str(own)], capture_output=True, check=False).returncode != 0:
        pytest.skip("this file system has no immutable directories")
    try:
        check_all(server, asked)
        assert server.flush().status == 503
        check_all(server, asked)
    finally:
        subprocess.run(["chattr", "-i", str(own)], check=True)
    flush = server.flush()
    assert flush.status == 200, flush.body
    server.kill()
    server = start(model=tiny)
    for messages, reply in asked:
        answer = server.chat(messages)
        assert answer.exact == reply
        assert answer.cached == answer.prompt_tokens - 1


def test_files_removed_under_the_running_server_are_computed_again(start, tiny, asked, cache_dir, tmp_path):
    server = start("--ram-cache", "0", model=tiny)
    check_all(server, asked)
    assert server.flush().status == 200
    for path in cache_files(cache_dir)[::2]:
        # The server itself removes what something longer has replaced.
        path.unlink(missing_ok=True)
    check_all(server, asked)
    next(path for path in cache_dir.iterdir() if path.is_dir()).rename(tmp_path / "gone")
    check_all(server, asked)
    flush = server.flush()
    assert flush.status == 200, flush.body
    server.kill()
    server = start(model=tiny)
    for messages, reply in asked:
        assert server.chat(messages).exact == reply


def block_files(cache_dir):
    return [path for path in cache_files(cache_dir) if path.suffix == ".kv" and path.parent.name != "damaged"]


def cut(path, size):
    os.truncate(path, min(size, path.stat().st_size))


def flip(path, place):
    with open(path, "r+b") as file:
        file.seek(min(place, path.stat().st_size - 1))
        byte = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([byte[0] ^ 4]))


def swap(one, other):
    contents = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(contents)


def damages():
    """Names, and functions that change some files as given by lists of arguments."""
    for size in (*range(0, 4096, 512), 1, 4095, *range(4096, 36864, 4096)):
        yield f"cut to {size}", cut, lambda files, size=size: [(path, size) for path in files]
    for place in (9, 70, 200, 1030, 4090, 4096, 9000, 20000):
        yield f"one bit at {place}", flip, lambda files, place=place: [(path, place) for path in files]
    yield "two files swapped", swap, lambda files: list(zip(files[::2], files[1::2]))


def test_files_damaged_under_the_running_server_are_never_served(start, tiny, asked, cache_dir):
    # Without RAM every block comes from the disk.
    server = start("--ram-cache", "0", model=tiny)
    messages, reply = asked[0]
    damaged = 0
    for name, damage, choose in damages():
        assert server.chat(messages).exact == reply
        flush = server.flush()
        assert flush.status == 200, (name, flush.body)
        for arguments in choose(block_files(cache_dir)):
            # The server itself removes what something longer has replaced.
            with contextlib.suppress(FileNotFoundError):
                damage(*arguments)
        assert server.chat(messages).exact == reply, name
        found = server.stats()["ssd_cache"]["damaged"]
        assert found > damaged, name
        damaged = found
    server.assert_alive()


def plant(kind, path, larger):
    try:
        path.unlink()
    except FileNotFoundError:
        return  # the server itself removes what something longer has replaced
    if kind == "directory":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "dangling link":
        path.symlink_to("/nowhere")
    elif kind == "link":
        path.symlink_to("/etc/passwd")
    elif kind == "unreadable":
        path.write_bytes(b"x" * 8192)
        path.chmod(0)
    elif kind == "another geometry":
        shutil.copyfile(larger, path)


@pytest.mark.parametrize("kind", ["directory", "fifo", "dangling link", "link", "unreadable", "another geometry"],
                         ids=lambda kind: kind.replace(" ", "-"))
@pytest.mark.parametrize("running", [False, True], ids=["before-a-start", "while-it-runs"])
def test_an_entry_that_cannot_be_used_is_given_up_after_one_try(start, tiny, asked, cache_dir, tmp_path, kind, running):
    other = start("--block-tokens", "128", model=tiny, cache=tmp_path / "other")
    messages, reply = asked[0]
    other.chat(messages)
    assert other.stop() == 0
    larger = block_files(tmp_path / "other")[0]
    server = start("--ram-cache", "0", model=tiny)
    server.chat(messages)
    assert server.flush().status == 200
    files = block_files(cache_dir)
    if not running:
        assert server.stop() == 0
    for path in files:
        plant(kind, path, larger)
    if not running:
        server = start("--ram-cache", "0", model=tiny)
    for _ in range(5):
        assert server.chat(messages).exact == reply
        flush = server.flush()
        assert flush.status == 200, flush.body
    assert server.chat(messages).from_ssd > 0
    # What took their place is there after a start as well.
    assert server.stop() == 0
    server = start("--ram-cache", "0", model=tiny)
    answer = server.chat(messages)
    assert answer.exact == reply
    assert answer.cached == answer.prompt_tokens - 1
    assert server.stop() == 0
    for path in files:
        assert not os.path.lexists(path) or stat.S_ISREG(path.lstat().st_mode)


def test_conversations_keep_apart_on_their_way_to_the_disk_and_back(start, tiny, asked):
    server = start("--ram-cache", "512KiB", model=tiny)
    short = [[{"role": "user", "content": f"Name {i} rivers."}] for i in range(10)]
    short_replies = [server.cold_chat(messages).exact for messages in short]
    wrong = []

    def ask(messages, reply):
        answer = server.chat(messages)
        if answer.exact != reply:
            wrong.append((messages, answer.exact))

    for turn in range(6):
        if turn == 5:
            assert server.flush().status == 200
            server.stop()
            server = start("--ram-cache", "512KiB", model=tiny)
        aside = [threading.Thread(target=ask, args=case) for case in zip(short, short_replies)]
        for thread in aside:
            thread.start()
        for messages, reply in asked[:6]:
            answer = server.chat(messages)
            assert answer.exact == reply
            assert answer.cached > 0 or turn == 0
        for thread in aside:
            thread.join()
        assert wrong == []
    assert server.stats()["cache"]["tokens_from_ssd"] > 0


def test_a_stop_keeps_the_newest_work_of_many_conversations(start, tiny):
    server = start(model=tiny)
    cases = [question(150, f"{WORDS[i % len(WORDS)]} {i}") for i in range(30)]
    replies = [server.chat(messages).exact for messages in cases]
    assert server.stop() == 0
    server = start(model=tiny)
    for messages, reply in reversed(list(zip(cases, replies))):
        answer = server.chat(messages)
        assert answer.exact == reply
        assert answer.from_ssd == answer.prompt_tokens - 1


def times(files):
    result = {}
    for path in files:
        with contextlib.suppress(FileNotFoundError):
            result[path] = path.stat().st_mtime_ns
    return result


def test_a_flush_tells_the_truth_about_the_moment(start, tiny, cache_dir):
    server = start(model=tiny)
    replies = []
    cases = [question(120, f"{WORDS[i % len(WORDS)]} {i}") for i in range(30)]
    for messages in cases:
        replies.append(server.chat(messages).exact)
        first = server.flush()
        assert first.status == 200, first.body
        written = times(block_files(cache_dir))
        second = server.flush()
        assert second.status == 200, second.body
        assert second.json["flushed"] == 0
        # Shorter ones may have gone; nothing has been written.
        assert times(block_files(cache_dir)).items() <= written.items()
    server.kill()
    server = start(model=tiny)
    for messages, reply in zip(cases, replies):
        answer = server.chat(messages)
        assert answer.exact == reply
        assert answer.from_ssd == answer.prompt_tokens - 1


def total_bytes(directory):
    total = 0
    for path in [directory, *directory.rglob("*")]:
        try:
            total += path.lstat().st_blocks * 512
        except FileNotFoundError:
            pass
    return total


def test_the_cap_holds_over_the_files_of_two_models(start, tiny, other_tiny, asked, cache_dir):
    cap = 3 << 20
    options = ("--ssd-cache", "3MiB", "--ram-cache", "0")
    server = start(*options, model=tiny)
    check_all(server, asked[:7])
    assert server.stop() == 0
    first = set(block_files(cache_dir))
    assert total_bytes(cache_dir) > cap // 2
    server = start(*options, model=other_tiny)
    most = 0
    stop = threading.Event()

    def watch():
        nonlocal most
        while not stop.is_set():
            most = max(most, total_bytes(cache_dir))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        for messages, _ in asked:
            assert server.chat(messages).status == 200
        # Not everything need fit.
        server.flush()
    finally:
        stop.set()
        watcher.join()
    assert most <= cap
    # The oldest went first, whoever had written them.
    assert len(first & set(block_files(cache_dir))) < len(first)
    # Files that are on their way out are counted until they are gone.
    assert any(server.stats()["ssd_cache"]["bytes"] == total_bytes(cache_dir) for _ in range(1000))
    server.stop()
    # A smaller cap holds from the start on.
    server = start("--ssd-cache", "1MiB", model=other_tiny)
    assert total_bytes(cache_dir) <= 1 << 20


def test_a_left_over_of_tomorrow_is_removed_and_a_live_servers_is_not(start, tiny, cache_dir):
    server = start(model=tiny)
    server.chat(question(100, "zebra"))
    assert server.stop() == 0
    own = next(path for path in cache_dir.iterdir() if path.is_dir())
    left = own / "tmp-77"
    left.write_bytes(b"x" * 5000)
    os.utime(left, (4e9, 4e9))
    server = start(model=tiny)
    assert not left.exists()
    left.write_bytes(b"being written")
    refused = everwarm.run("serve", tiny, "--port", "0", "--cache-dir", str(cache_dir))
    assert refused.returncode > 0
    assert left.exists()
    assert pathlib.Path(cache_dir / "lock").exists()
