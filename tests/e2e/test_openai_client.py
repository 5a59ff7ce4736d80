"""The API as its own client library sees it."""
import json

import openai
import pydantic
import pytest


@pytest.fixture(scope="module")
def client(shared):
    with openai.OpenAI(base_url=f"http://127.0.0.1:{shared.port}/v1", api_key="none",
                       max_retries=0) as client:
        yield client


MESSAGES = [{"role": "developer", "content": "You are terse."},
            {"role": "user", "content": [{"type": "text", "text": "Name a river."}]}]

TOOLS = [{"type": "function", "function": {
              "name": "get_weather", "description": "Says the weather in a city.",
              "parameters": {"type": "object",
                             "properties": {"unit": {"enum": ["celsius", "kelvin"]},
                                            "days": {"type": "integer", "minimum": 1, "maximum": 9}},
                             "required": ["unit", "days"], "additionalProperties": False}}},
         {"type": "function", "function": {"name": "stop", "parameters": {
             "type": "object", "properties": {}, "additionalProperties": False}}}]
WEATHER = {"type": "function", "function": {"name": "get_weather"}}


class Answer(pydantic.BaseModel):
    warm: bool
    season: str = pydantic.Field(pattern="^(spring|summer|autumn|winter)$")


def chat(client, **more):
    return client.chat.completions.create(**{"model": "any", "messages": MESSAGES, "max_tokens": 12,
                                             "temperature": 0, **more})


def test_a_chat(client):
    reply = chat(client, max_tokens=None, max_completion_tokens=8, seed=1)
    assert reply.object == "chat.completion"
    assert reply.choices[0].message.role == "assistant"
    assert reply.choices[0].message.content
    assert reply.choices[0].finish_reason in ("stop", "length")
    usage = reply.usage
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    again = chat(client, max_tokens=None, max_completion_tokens=8, seed=1)
    assert again.choices[0].message.content == reply.choices[0].message.content
    assert again.usage.prompt_tokens_details.cached_tokens == usage.prompt_tokens - 1
    assert again.id != reply.id


def test_a_streamed_chat(client):
    whole = chat(client)
    with chat(client, stream=True, stream_options={"include_usage": True}) as stream:
        chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [chunk.usage for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert len({chunk.id for chunk in chunks}) == 1


def test_a_completion(client):
    whole = client.completions.create(model="any", prompt="Rivers:", max_tokens=8, temperature=0)
    assert whole.choices[0].text
    with client.completions.create(model="any", prompt="Rivers:", max_tokens=8, temperature=0,
                                   stream=True) as stream:
        assert "".join(chunk.choices[0].text for chunk in stream) == whole.choices[0].text


def test_several_prompts_with_an_echo(client):
    prompts = ["Rivers:", "Lakes:"]
    alone = [client.completions.create(model="any", prompt=prompt, max_tokens=6, temperature=0)
             .choices[0].text for prompt in prompts]
    both = client.completions.create(model="any", prompt=prompts, n=2, max_tokens=6, temperature=0,
                                     echo=True)
    assert [choice.index for choice in both.choices] == [0, 1, 2, 3]
    assert [choice.text for choice in both.choices] == [prompts[0] + alone[0]] * 2 + \
        [prompts[1] + alone[1]] * 2
    assert both.usage.completion_tokens == 24


def test_several_choices_differ_by_their_seed_and_can_be_had_again(client):
    def ask(stream):
        reply = chat(client, n=3, temperature=1.5, seed=7, stream=stream)
        if not stream:
            return [choice.message.content for choice in reply.choices]
        texts = ["", "", ""]
        for chunk in reply:
            for choice in chunk.choices:
                texts[choice.index] += choice.delta.content or ""
        return texts
    texts = ask(False)
    assert len(set(texts)) > 1
    assert ask(False) == texts
    assert ask(True) == texts


def test_the_same_seed_gives_the_same_text(client):
    def ask(seed):
        return client.completions.create(model="any", prompt="Rivers:", max_tokens=24, temperature=1.5,
                                         seed=seed).choices[0].text
    assert ask(7) == ask(7)
    assert len({ask(seed) for seed in range(4)}) > 1


@pytest.mark.parametrize("choice", ["required", WEATHER])
def test_a_tool_that_must_be_called(client, choice):
    reply = chat(client, tools=TOOLS, tool_choice=choice, parallel_tool_calls=False, max_tokens=80)
    assert reply.choices[0].finish_reason == "tool_calls"
    [call] = reply.choices[0].message.tool_calls
    assert call.type == "function"
    assert call.id
    arguments = json.loads(call.function.arguments)
    if choice == WEATHER or call.function.name == "get_weather":
        assert call.function.name == "get_weather"
        assert arguments["unit"] in ("celsius", "kelvin")
        assert 1 <= arguments["days"] <= 9
    else:
        assert arguments == {}
    # Streamed, it is the same call in pieces.
    pieces = ""
    names = []
    for chunk in chat(client, tools=TOOLS, tool_choice=choice, parallel_tool_calls=False,
                      max_tokens=80, stream=True):
        for delta in chunk.choices[0].delta.tool_calls or []:
            assert delta.index == 0
            if delta.function.name:
                names.append(delta.function.name)
            pieces += delta.function.arguments or ""
    assert names == [call.function.name]
    assert pieces == call.function.arguments
    assert chunk.choices[0].finish_reason == "tool_calls"


def test_a_result_goes_back_and_every_empty_content_is_the_same_prompt(client):
    call = chat(client, tools=TOOLS, tool_choice=WEATHER,
                max_tokens=80).choices[0].message.tool_calls[0].model_dump()
    counts = set()
    cached = []
    for content in ({"content": None}, {}, {"content": ""}, {"content": []}):
        history = [*MESSAGES, {"role": "assistant", "tool_calls": [call], **content},
                   {"role": "tool", "tool_call_id": call["id"],
                    "content": [{"type": "text", "text": "21 degrees,"},
                                {"type": "text", "text": "sunny"}]},
                   {"role": "user", "content": "So, is it warm?"}]
        reply = chat(client, messages=history, tools=TOOLS, tool_choice="none")
        assert reply.choices[0].message.content
        counts.add(reply.usage.prompt_tokens)
        cached.append(reply.usage.prompt_tokens_details.cached_tokens)
    assert len(counts) == 1
    assert cached[1:] == [counts.pop() - 1] * 3


def test_a_reply_of_a_schema(client):
    question = [{"role": "user", "content": "Is July warm in Rome? Answer in JSON."}]
    parsed = client.chat.completions.parse(model="any", messages=question, response_format=Answer,
                                           max_tokens=80, temperature=0)
    assert isinstance(parsed.choices[0].message.parsed, Answer)
    text = ""
    for chunk in chat(client, messages=question, max_tokens=80, stream=True, response_format={
            "type": "json_schema",
            "json_schema": {"name": "answer", "schema": Answer.model_json_schema()}}):
        text += chunk.choices[0].delta.content or ""
    assert Answer.model_validate_json(text)


def test_a_grammar_is_followed(client):
    grammar = 'root ::= "yes" | "no"'
    assert chat(client, extra_body={"grammar": grammar}).choices[0].message.content in ("yes", "no")
    reply = client.completions.create(model="any", prompt="Is water wet?", max_tokens=20, temperature=0,
                                      extra_body={"grammar": grammar})
    assert reply.choices[0].text in ("yes", "no")
    assert reply.choices[0].finish_reason == "stop"


def test_logprobs_belong_to_the_text(client):
    reply = chat(client, logprobs=True, top_logprobs=3)
    choice = reply.choices[0]
    tokens = choice.logprobs.content
    assert b"".join(bytes(token.bytes) for token in tokens).decode() == choice.message.content
    assert len(tokens) in (reply.usage.completion_tokens, reply.usage.completion_tokens - 1)
    for token in tokens:
        assert token.logprob <= 0
        assert len(token.top_logprobs) == 3
        assert token.top_logprobs[0].token == token.token  # greedy
    streamed = []
    for chunk in chat(client, logprobs=True, top_logprobs=3, stream=True):
        if chunk.choices[0].logprobs:
            streamed += chunk.choices[0].logprobs.content
    assert [token.token for token in streamed] == [token.token for token in tokens]
    old = client.completions.create(model="any", prompt="Rivers:", max_tokens=6, temperature=0,
                                    logprobs=2).choices[0]
    assert "".join(old.logprobs.tokens) == old.text
    assert all(len(top) == 2 for top in old.logprobs.top_logprobs)


def test_a_bias_bans_and_forces(client, shared):
    first = chat(client, logprobs=True).choices[0].logprobs.content[0]
    token = shared.tokens(first.token)[-1]
    banned = chat(client, logprobs=True, logit_bias={str(token): -100}).choices[0]
    assert banned.logprobs.content[0].token != first.token
    forced = chat(client, max_tokens=4, logit_bias={str(token): 100}).choices[0]
    assert forced.message.content == first.token * 4


def test_responses_that_go_on(client):
    first = client.responses.create(model="any", input="Name a river.", max_output_tokens=12,
                                    temperature=0, instructions="You are terse.")
    assert first.output_text
    assert first.usage.output_tokens > 0
    second = client.responses.create(model="any", input="And another?", max_output_tokens=12,
                                     temperature=0, instructions="You are terse.",
                                     previous_response_id=first.id)
    assert second.previous_response_id == first.id
    # The conversation so far is in its prompt, and was not computed again.
    assert second.usage.input_tokens > first.usage.input_tokens
    assert second.usage.input_tokens_details.cached_tokens >= first.usage.input_tokens - 1
    with pytest.raises(openai.BadRequestError) as gone:
        client.responses.create(model="any", input="a", previous_response_id="resp_0")
    assert gone.value.param == "previous_response_id"


def test_a_streamed_response(client):
    whole = client.responses.create(model="any", input="Name a river.", max_output_tokens=12,
                                    temperature=0)
    with client.responses.stream(model="any", input="Name a river.", max_output_tokens=12,
                                 temperature=0) as stream:
        events = list(stream)
        final = stream.get_final_response() if events[-1].type == "response.completed" else \
            events[-1].response
    assert events[0].type == "response.created"
    deltas = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert deltas == whole.output_text == final.output_text


def test_a_response_that_calls_a_function(client):
    tools = [{"type": "function", **TOOLS[0]["function"]}]
    reply = client.responses.create(model="any", input="How is the weather?", tools=tools,
                                    tool_choice="required", parallel_tool_calls=False,
                                    max_output_tokens=80, temperature=0)
    [call] = [item for item in reply.output if item.type == "function_call"]
    assert json.loads(call.arguments)["unit"] in ("celsius", "kelvin")
    after = client.responses.create(
        model="any", previous_response_id=reply.id, max_output_tokens=12, temperature=0,
        input=[{"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}])
    assert after.output_text
    structured = client.responses.parse(model="any", input="Is July warm in Rome?", text_format=Answer,
                                        max_output_tokens=80, temperature=0)
    assert isinstance(structured.output_parsed, Answer)


def test_models(client):
    models = client.models.list().data
    assert len(models) == 1
    assert client.models.retrieve(models[0].id).id == models[0].id
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("another")


def test_errors_are_the_clients_own_kinds(client):
    def refused(**more):
        with pytest.raises(openai.BadRequestError) as bad:
            chat(client, **more)
        return bad.value.param
    assert refused(messages=[]) == "messages"
    assert refused(n=0) == "n"
    assert refused(tools=[{"type": "function", "function": {"name": "a b"}}]) == "tools[0]"
    assert refused(tool_choice="required") == "tool_choice"
    assert refused(messages=[{"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}]}]) == \
        "messages[0].content[0]"
    with pytest.raises(openai.BadRequestError):
        chat(client, extra_body={"grammar": "root ::= ("})
    with pytest.raises(openai.BadRequestError):
        chat(client, response_format={"type": "json_schema", "json_schema": {
            "name": "x", "schema": {"$ref": "#/nowhere"}}})
    with pytest.raises(openai.NotFoundError):
        client.embeddings.create(model="any", input="a", encoding_format="float")
