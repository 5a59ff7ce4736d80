"""Models with a chat template that thinks: the cue that only a prompt ends with spoils no cache."""
import pathlib
import subprocess
import sys

import pytest

from everwarm import GEMMA, ROOT, SMOL, question

TEMPLATE = ROOT / ".deps/llama.cpp/models/templates/Qwen-Qwen3-0.6B.jinja"
# What the prompt ends with when the template is asked not to think; a history lacks it.
CUE = "<think>\n\n</think>\n\n"
QUIET = {"chat_template_kwargs": {"enable_thinking": False}}


@pytest.fixture(scope="module", params=[SMOL, GEMMA], ids=["full", "window"])
def model(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / ("full.gguf" if request.param == SMOL else "window.gguf")
    subprocess.run([pathlib.Path(sys.executable).parent / "gguf-new-metadata", "--force",
                    "--chat-template-file", str(TEMPLATE), request.param, str(path)],
                   check=True, capture_output=True)
    return str(path)


def test_a_stripped_cue_costs_only_itself(start, model):
    server = start(model=model)
    cue = len(server.request("POST", "/tokenize", {"content": CUE}).json["tokens"])
    # Longer than a window, so that not every position can be gone on from.
    messages = question(900, "otter")
    first = server.chat(messages, 12, ignore_eos=True, **QUIET)
    messages = [*messages, {"role": "assistant", "content": first.text},
                {"role": "user", "content": "Go on."}]
    second = server.chat(messages, 12, ignore_eos=True, **QUIET)
    assert first.prompt_tokens - cue - 1 <= second.cached < first.prompt_tokens
    if model.endswith("full.gguf"):
        # The window model's products depend on how many rows are computed at once.
        assert second.text == server.cold_chat(messages, 12, ignore_eos=True, **QUIET).text
    # The turn after that knows all of it, but its cue; also after a restart.
    assert server.flush().status == 200
    server.kill()
    server = start(model=model)
    messages = [*messages, {"role": "assistant", "content": second.text},
                {"role": "user", "content": "And then?"}]
    third = server.chat(messages, 12, ignore_eos=True, **QUIET)
    assert third.cached >= second.prompt_tokens - cue - 1
    assert third.from_ssd == third.cached
