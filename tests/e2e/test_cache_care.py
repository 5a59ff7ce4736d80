"""everwarm cache verify, gc and rm, and everwarm doctor, on a directory that a server filled."""
import os
import time

import pytest

import everwarm
from everwarm import question


def blocks(directory):
    return sorted(directory.rglob("*.kv"))


def cache(command, directory, *options):
    return everwarm.run("cache", command, "--cache-dir", str(directory), *options)


@pytest.fixture
def filled(start, cache_dir):
    server = start()
    server.chat(question(300, "zebra"))
    assert server.stop() == 0
    assert len(blocks(cache_dir)) > 3
    return cache_dir


def test_verify_reads_everything_and_finds_each_damage(filled):
    whole = cache("verify", filled)
    assert whole.returncode == 0, whole.stderr
    assert f"read {len(blocks(filled))} blocks" in whole.stdout
    payload, header = blocks(filled)[0], blocks(filled)[1]
    for path, offset in ((payload, 5000), (header, 80)):
        with open(path, "r+b") as file:
            file.seek(offset)
            byte = file.read(1)
            file.seek(offset)
            file.write(bytes([byte[0] ^ 1]))
    result = cache("verify", filled)
    assert result.returncode == 4
    assert f"damaged: {payload}: " in result.stdout
    assert f"damaged: {header}: " in result.stdout
    assert "2 damaged" in result.stdout
    assert payload.exists() and header.exists()


def test_verify_may_run_beside_a_server(start, cache_dir):
    server = start()
    server.chat(question(100, "zebra"))
    assert server.flush().status == 200
    result = cache("verify", cache_dir)
    assert result.returncode == 0, result.stderr
    assert "0 damaged" in result.stdout


def test_gc_removes_what_nobody_needs(filled):
    model = next(path for path in filled.iterdir() if len(path.name) == 64)
    (model / "tmp-9").write_bytes(b"x" * 5000)
    (filled / "damaged").mkdir()
    (filled / "damaged/old.kv.1.0").write_bytes(b"x")
    before = blocks(filled)
    result = cache("gc", filled)
    assert result.returncode == 0, result.stderr
    assert "removed 2 files" in result.stdout
    assert blocks(filled) == before
    other = filled / ("f" * 64)
    other.mkdir()
    (other / before[0].name).write_bytes(before[0].read_bytes())
    assert cache("gc", filled, "--keep", "nothing").returncode == 2
    assert len(blocks(filled)) == len(before) + 1
    assert cache("gc", filled, "--keep", model.name[:12]).returncode == 0
    assert blocks(filled) == before


def test_rm_of_old_blocks_keeps_what_was_used(start, filled):
    long_ago = time.time() - 40 * 86400
    for path in blocks(filled):
        os.utime(path, (long_ago, long_ago))
    server = start()
    server.chat([{"role": "user", "content": "Name a river."}])
    assert server.stop() == 0
    result = cache("rm", filled, "--older-than", "30d")
    assert result.returncode == 0, result.stderr
    assert blocks(filled)
    server = start()
    assert server.chat([{"role": "user", "content": "Name a river."}]).from_ssd > 0
    # Of the old conversation only the block that both begin with is left.
    assert server.chat(question(300, "zebra")).cached <= everwarm.BLOCK


@pytest.mark.parametrize("age", ["999999d", "106752d", "36501d", "99999999999d"])
def test_an_age_beyond_all_times_removes_nothing(filled, age):
    before = blocks(filled)
    result = cache("rm", filled, "--older-than", age)
    assert result.returncode == 2
    assert age in result.stderr and "36500d" in result.stderr
    assert blocks(filled) == before
    # The longest that there is.
    result = cache("rm", filled, "--older-than", "36500d")
    assert result.returncode == 0, result.stderr
    assert blocks(filled) == before


def test_links_are_neither_followed_nor_passed_over_in_silence(filled, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "mine.txt").write_text("precious")
    (filled / "damaged").symlink_to(elsewhere)
    for command in (("gc",), ("rm", "--all")):
        result = cache(command[0], filled, *command[1:])
        assert result.returncode == 1
        assert f"{filled}/damaged is not a directory" in result.stderr, result.stderr
    (filled / "damaged").unlink()
    model = filled / ("e" * 64)
    model.symlink_to(elsewhere)
    for command in (("gc",), ("rm", "--all"), ("rm", "--older-than", "1d"), ("ls",)):
        result = cache(command[0], filled, *command[1:])
        assert result.returncode == 1, command
        assert str(model) in result.stderr, result.stderr
    result = cache("verify", filled)
    assert result.returncode == 4
    assert f"damaged: {model}: " in result.stdout
    assert (elsewhere / "mine.txt").read_text() == "precious"


def test_rm_all_really_removes(start, filled):
    result = cache("rm", filled, "--all")
    assert result.returncode == 0, result.stderr
    assert [path.name for path in filled.rglob("*") if path.is_file()] == ["lock"]
    server = start()
    assert server.chat(question(300, "zebra")).cached == 0


def test_a_directory_in_use_and_bad_options_are_one_clear_line(start, cache_dir, tmp_path):
    server = start()
    server.chat(question(100, "zebra"))
    for arguments, word in ((("gc", cache_dir), "in use"), (("rm", cache_dir, "--all"), "in use"),
                            (("rm", cache_dir), "--older-than"),
                            (("rm", cache_dir, "--all", "--older-than", "1d"), "--all"),
                            (("rm", cache_dir, "--older-than", "soon"), "--older-than"),
                            (("rm", cache_dir, "--older-than", "999999d"), "--older-than"),
                            (("gc", tmp_path), "not a cache directory"),
                            (("verify", tmp_path / "none"), "none")):
        result = cache(*arguments)
        assert result.returncode in (1, 2)
        lines = result.stderr.splitlines()
        assert len(lines) == 1 and lines[0].startswith("everwarm: ") and word in lines[0], result.stderr
    server.assert_alive()


def test_a_scrub_finds_damage_that_nobody_asked_for(start, filled):
    path = blocks(filled)[0]
    with open(path, "r+b") as file:
        file.seek(6000)
        byte = file.read(1)
        file.seek(6000)
        file.write(bytes([byte[0] ^ 1]))
    server = start("--scrub", "100MiB")
    deadline = time.monotonic() + 60
    while server.stats()["ssd_cache"]["damaged"] == 0:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert server.stats()["ssd_cache"]["scrubbed"] > 0
    assert server.chat(question(300, "zebra")).status == 200
    assert server.stop() == 0
    assert list((filled / "damaged").iterdir())


def test_doctor_says_in_words_what_can_be_promised(tmp_path):
    result = everwarm.run("doctor", "--cache-dir", str(tmp_path / "cache"))
    for word in ("fsync", "rename", "O_DIRECT", "lock", "survives a power loss", "iB/s"):
        assert word in result.stdout, result.stdout
    assert (result.returncode == 0) == ("BAD" not in result.stdout)
    assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.parametrize("mode, word", [(0o777, "BAD"), (0o770, "BAD"), (0o755, "doubt"), (0o700, "good")], ids=str)
def test_doctor_looks_at_who_may_write_to_the_directory(tmp_path, mode, word):
    directory = tmp_path / "cache"
    directory.mkdir()
    directory.chmod(mode)
    result = everwarm.run("doctor", "--cache-dir", str(directory))
    line = next(line for line in result.stdout.splitlines() if " access " in line)
    assert line.split()[0] == word, line
    assert word != "BAD" or result.returncode == 1


def test_doctor_tells_that_the_directory_is_somebody_elses(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("only root can give a directory away")
    directory = tmp_path / "cache"
    directory.mkdir(mode=0o700)
    os.chown(directory, 65534, -1)
    result = everwarm.run("doctor", "--cache-dir", str(directory))
    assert result.returncode == 1
    assert "belongs to another user (65534)" in result.stdout


def test_doctor_knows_that_memory_is_no_disk():
    if not os.path.ismount("/dev/shm"):
        pytest.skip("no /dev/shm here")
    result = everwarm.run("doctor", "--cache-dir", f"/dev/shm/everwarm-doctor-{os.getpid()}")
    os.rmdir(f"/dev/shm/everwarm-doctor-{os.getpid()}")
    assert result.returncode == 1
    assert "memory" in result.stdout
