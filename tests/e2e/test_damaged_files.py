"""Files that are cut, foreign or gone: never a wrong text, never a failed start."""
import shutil

import pytest

from everwarm import cache_files, question

CUTS = {
    "to nothing": lambda size: 0,
    "to ten bytes": lambda size: 10,
    "in the header": lambda size: 2048,
    "in the payload": lambda size: 4096 + (size - 4096) // 2,
    "by one byte": lambda size: size - 1,
}


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """A directory with one conversation, and what its answers must be."""
    import everwarm
    directory = tmp_path_factory.mktemp("stored")
    server = everwarm.Server(directory / "cache", log=directory / "server.log")
    messages = question(300, "zebra")
    other = question(200, "otter")
    answers = (server.chat(messages).text, server.cold_chat(other).text)
    assert server.stop() == 0
    # What the cold question left is of no use to anybody, and does no harm.
    return directory / "cache", messages, other, answers


@pytest.mark.parametrize("cut", CUTS, ids=lambda name: name.replace(" ", "-"))
def test_a_file_that_was_cut_is_computed_again(start, stored, cache_dir, cut):
    directory, messages, other, (text, other_text) = stored
    shutil.copytree(directory, cache_dir)
    files = cache_files(cache_dir)
    assert files
    for path in files:
        size = path.stat().st_size
        with open(path, "r+b") as file:
            file.truncate(CUTS[cut](size))
    server = start()
    first = server.chat(messages)
    assert first.text == text
    assert first.cached == 0
    assert server.chat(other).text == other_text
    again = server.chat(messages)
    assert again.text == text
    assert again.cached > 0
    assert server.stats()["ssd_cache"]["damaged"] > 0
    # What was computed again is kept again.
    assert server.flush().status == 200
    assert server.stop() == 0
    server = start()
    last = server.chat(messages)
    assert last.text == text
    assert last.from_ssd > 0


@pytest.mark.parametrize("preload", ["0", "256MiB"])
def test_one_changed_byte_is_found_before_it_is_used(start, stored, cache_dir, preload):
    directory, messages, _, (text, _) = stored
    shutil.copytree(directory, cache_dir)
    for path in cache_files(cache_dir):
        size = path.stat().st_size
        with open(path, "r+b") as file:
            file.seek(4096 + (size - 4096) // 2)
            byte = file.read(1)
            file.seek(-1, 1)
            file.write(bytes([byte[0] ^ 1]))
    server = start("--preload", preload)
    first = server.chat(messages)
    assert first.text == text
    assert first.cached == 0
    assert server.chat(messages).cached > 0
    assert server.stats()["ssd_cache"]["damaged"] > 0


def test_another_block_size_shares_nothing_and_harms_nothing(start, cache_dir):
    messages = question(300, "zebra")
    server = start()
    text = server.chat(messages).text
    assert server.stop() == 0
    before = {path: path.read_bytes() for path in cache_files(cache_dir)}
    server = start("--block-tokens", "32")
    other = server.chat(messages)
    assert other.cached == 0
    assert other.text == text
    assert server.stop() == 0
    for path, content in before.items():
        assert path.read_bytes() == content
    server = start()
    again = server.chat(messages)
    assert again.text == text
    assert again.from_ssd > 0
