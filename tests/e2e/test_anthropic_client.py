"""Anthropic's API as its own client library sees it."""
import anthropic
import pydantic
import pytest


@pytest.fixture(scope="module")
def client(shared):
    with anthropic.Anthropic(base_url=f"http://127.0.0.1:{shared.port}", api_key="none",
                             max_retries=0) as client:
        yield client


MESSAGES = [{"role": "user", "content": "Name a river."}]
TOOLS = [{"name": "get_weather", "description": "Says the weather in a city.",
          "input_schema": {"type": "object",
                           "properties": {"unit": {"enum": ["celsius", "kelvin"]},
                                          "days": {"type": "integer", "minimum": 1, "maximum": 9}},
                           "required": ["unit", "days"], "additionalProperties": False}}]


class Answer(pydantic.BaseModel):
    warm: bool
    degrees: int


def request(**more):
    # The API has no temperature any more; this server has.
    return {"model": "any", "messages": MESSAGES, "max_tokens": 12, "extra_body": {"temperature": 0},
            **more}


def ask(client, **more):
    return client.messages.create(**request(**more))


def total(usage):
    return usage.input_tokens + usage.cache_read_input_tokens + usage.cache_creation_input_tokens


def test_a_message(client):
    system = [{"type": "text", "text": "You are terse.", "cache_control": {"type": "ephemeral"}}]
    reply = ask(client, system=system)
    assert reply.type == "message"
    assert reply.role == "assistant"
    assert reply.content[0].type == "text"
    assert reply.content[0].text
    assert reply.stop_reason in ("end_turn", "max_tokens")
    counted = client.messages.count_tokens(model="any", messages=MESSAGES, system=system)
    assert total(reply.usage) == counted.input_tokens
    assert reply.usage.cache_creation_input_tokens > 0
    again = ask(client, system=system)
    assert again.content[0].text == reply.content[0].text
    assert again.usage.cache_read_input_tokens == counted.input_tokens - 1


def test_a_streamed_message(client):
    whole = ask(client)
    with client.messages.stream(**request()) as stream:
        assert "".join(stream.text_stream) == whole.content[0].text
        final = stream.get_final_message()
    assert final.content[0].text == whole.content[0].text
    assert final.stop_reason == whole.stop_reason
    assert final.usage.output_tokens == whole.usage.output_tokens


def test_a_tool_that_must_be_called(client):
    choice = {"type": "tool", "name": "get_weather", "disable_parallel_tool_use": True}
    reply = ask(client, tools=TOOLS, tool_choice=choice, max_tokens=80)
    assert reply.stop_reason == "tool_use"
    [call] = [block for block in reply.content if block.type == "tool_use"]
    assert call.name == "get_weather"
    assert call.input["unit"] in ("celsius", "kelvin")
    assert 1 <= call.input["days"] <= 9
    with client.messages.stream(**request(max_tokens=80, tools=TOOLS, tool_choice=choice)) as stream:
        streamed = stream.get_final_message()
    assert [block.input for block in streamed.content if block.type == "tool_use"] == [call.input]
    assert streamed.stop_reason == "tool_use"
    # The result goes back.
    after = ask(client, tools=TOOLS, tool_choice={"type": "none"}, messages=[
        *MESSAGES, {"role": "assistant", "content": [block.model_dump() for block in reply.content]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id,
                                      "content": "21 degrees"},
                                     {"type": "text", "text": "So, is it warm?"}]}])
    assert after.content[0].text


def test_a_reply_of_a_schema(client):
    question = [{"role": "user", "content": "Is July warm in Rome?"}]
    parsed = client.messages.parse(**request(messages=question, max_tokens=80, output_format=Answer))
    assert isinstance(parsed.parsed_output, Answer)


def test_a_stop_sequence_ends_a_reply_and_is_named(client):
    text = ask(client, max_tokens=24).content[0].text
    stop = text[len(text) // 2:len(text) // 2 + 4]
    reply = ask(client, max_tokens=24, stop_sequences=[stop])
    assert reply.stop_reason == "stop_sequence"
    assert reply.stop_sequence == stop
    assert reply.content[0].text == text[:text.index(stop)]


def test_an_answer_that_was_begun_is_gone_on_with(client):
    whole = ask(client).content[0].text
    begin = whole[:len(whole) // 2].rstrip()
    reply = ask(client, messages=[*MESSAGES, {"role": "assistant", "content": begin}])
    assert reply.content[0].text
    # The prompt ends inside the assistant's turn: no new one begins.
    prompt = client.messages.count_tokens(model="any", messages=[
        *MESSAGES, {"role": "assistant", "content": begin}]).input_tokens
    assert total(reply.usage) == prompt


def test_errors_are_the_clients_own_kinds(client):
    def refused(**more):
        with pytest.raises(anthropic.BadRequestError) as bad:
            ask(client, **more)
        body = bad.value.body
        assert body["type"] == "error"
        assert body["error"]["type"] == "invalid_request_error"
        return body["error"]["message"]
    assert "messages" in refused(messages=[])
    assert "max_tokens" in refused(max_tokens=0)
    assert "image" in refused(messages=[{"role": "user", "content": [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA"}}]}])
    assert "4096" in refused(messages=[{"role": "user", "content": "word " * 6000}])
    with pytest.raises(anthropic.NotFoundError):
        client.post("/v1/messages/nothing", cast_to=object, body={})
