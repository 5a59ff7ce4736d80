import pytest

import everwarm
import tiny_model


@pytest.fixture
def cache_dir(tmp_path):
    return tmp_path / "cache"


@pytest.fixture
def start(tmp_path, cache_dir):
    """Starts servers; those that still run at the end are killed."""
    servers = []

    def start_one(*options, cache=cache_dir, **more):
        server = everwarm.Server(cache, *options, log=tmp_path / f"server{len(servers)}.log", **more)
        servers.append(server)
        return server

    yield start_one
    for server in servers:
        server.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """One server for the tests of a file that only ask."""
    directory = tmp_path_factory.mktemp("shared")
    server = everwarm.Server(directory / "cache", log=directory / "server.log")
    yield server
    server.close()


def _write_tiny(tmp_path_factory, name, **more):
    path = tmp_path_factory.mktemp("models") / name
    tiny_model.write(path, **more)
    return str(path)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """A model that loads in a blink."""
    return _write_tiny(tmp_path_factory, "tiny.gguf")


@pytest.fixture(scope="session")
def other_tiny(tmp_path_factory):
    """The same with other weights."""
    return _write_tiny(tmp_path_factory, "other.gguf", seed=2)


@pytest.fixture(scope="session")
def tiny_window(tmp_path_factory):
    """One with sliding windows."""
    return _write_tiny(tmp_path_factory, "window.gguf", architecture="gemma3")


@pytest.fixture(scope="session")
def tiny_recurrent(tmp_path_factory):
    """One with states."""
    return _write_tiny(tmp_path_factory, "recurrent.gguf", architecture="lfm2")
