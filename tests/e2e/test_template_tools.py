"""Calls in the form of each family's own chat template: required, streamed, sent back with a result."""
import json

import pytest

import tiny_model
from everwarm import ROOT

TEMPLATES = ROOT / ".deps/llama.cpp/models/templates"
# Those whose form lets a required call come first. Others have text or thoughts before it, and a model of random
# weights never comes to their end.
FAMILIES = ["Qwen-Qwen3-0.6B", "Qwen-Qwen2.5-7B-Instruct",
            "NousResearch-Hermes-3-Llama-3.1-8B-tool_use", "LFM2-8B-A1B", "ibm-granite-granite-4.0",
            "deepseek-ai-DeepSeek-V3.1", "mistralai-Mistral-Nemo-Instruct-2407"]

TOOLS = [{"type": "function", "function": {
    "name": "get_weather", "description": "Says the weather in a city.",
    "parameters": {"type": "object",
                   "properties": {"city": {"enum": ["Ulm", "Bonn"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
                   "required": ["city", "days"], "additionalProperties": False}}}]
MESSAGES = [{"role": "system", "content": "You help."}, {"role": "user", "content": "How is the weather in Ulm?"}]
CALL = {"tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": False, "max_tokens": 300,
        "chat_template_kwargs": {"enable_thinking": False}}


@pytest.fixture(params=FAMILIES)
def server(request, start, tmp_path):
    path = tmp_path / "model.gguf"
    template = (TEMPLATES / f"{request.param}.jinja").read_text()
    tiny_model.write(path, changes={tiny_model.TEMPLATE: template})
    return start(model=path)


def test_a_call_is_made_streamed_and_answered(server):
    answer = server.chat(MESSAGES, **CALL)
    assert answer.status == 200, answer.body
    [choice] = answer.json["choices"]
    assert choice["finish_reason"] == "tool_calls", choice
    [call] = choice["message"]["tool_calls"]
    assert call["function"]["name"] == "get_weather"
    arguments = json.loads(call["function"]["arguments"])
    assert arguments["city"] in ("Ulm", "Bonn")
    assert 1 <= arguments["days"] <= 9

    names, pieces, finish = [], "", None
    stream = server.stream("/v1/chat/completions", {"messages": MESSAGES, "temperature": 0, **CALL})
    for event in stream.events():
        if event == "[DONE]":
            break
        [choice] = json.loads(event)["choices"]
        for delta in choice["delta"].get("tool_calls", []):
            if "name" in delta["function"]:
                names.append(delta["function"]["name"])
            pieces += delta["function"].get("arguments", "")
        finish = choice["finish_reason"] or finish
    stream.close()
    assert (names, json.loads(pieces), finish) == (["get_weather"], arguments, "tool_calls")

    history = [*MESSAGES, {"role": "assistant", "content": None, "tool_calls": [call]},
               {"role": "tool", "tool_call_id": call["id"], "content": "21 degrees, sunny"}]
    after = server.chat(history, 8, tools=TOOLS, tool_choice="none")
    assert after.status == 200, after.body
    # What stands before the reply is known; templates may write the reply itself in another way than it was made.
    assert after.cached >= answer.prompt_tokens // 2
