"""The API as its own client library sees it."""
import openai
import pytest


@pytest.fixture(scope="module")
def client(shared):
    with openai.OpenAI(base_url=f"http://127.0.0.1:{shared.port}/v1", api_key="none",
                       max_retries=0) as client:
        yield client


MESSAGES = [{"role": "developer", "content": "You are terse."},
            {"role": "user", "content": [{"type": "text", "text": "Name a river."}]}]


def test_a_chat(client):
    reply = client.chat.completions.create(model="any", messages=MESSAGES, max_completion_tokens=8,
                                           temperature=0, seed=1)
    assert reply.object == "chat.completion"
    assert reply.choices[0].message.role == "assistant"
    assert reply.choices[0].message.content
    assert reply.choices[0].finish_reason in ("stop", "length")
    usage = reply.usage
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    again = client.chat.completions.create(model="any", messages=MESSAGES, max_completion_tokens=8,
                                           temperature=0, seed=1)
    assert again.choices[0].message.content == reply.choices[0].message.content
    assert again.usage.prompt_tokens_details.cached_tokens == usage.prompt_tokens - 1
    assert again.id != reply.id


def test_a_streamed_chat(client):
    whole = client.chat.completions.create(model="any", messages=MESSAGES, max_tokens=12, temperature=0)
    with client.chat.completions.create(model="any", messages=MESSAGES, max_tokens=12, temperature=0,
                                        stream=True, stream_options={"include_usage": True}) as stream:
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


def test_the_same_seed_gives_the_same_text(client):
    def ask(seed):
        return client.completions.create(model="any", prompt="Rivers:", max_tokens=24, temperature=1.5,
                                         seed=seed).choices[0].text
    assert ask(7) == ask(7)
    assert len({ask(seed) for seed in range(4)}) > 1


def test_models(client):
    models = client.models.list().data
    assert len(models) == 1
    assert client.models.retrieve(models[0].id).id == models[0].id
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("another")


def test_errors_are_the_clients_own_kinds(client):
    with pytest.raises(openai.BadRequestError) as bad:
        client.chat.completions.create(model="any", messages=[])
    assert bad.value.param == "messages"
    with pytest.raises(openai.BadRequestError) as many:
        client.chat.completions.create(model="any", messages=MESSAGES, n=2)
    assert many.value.param == "n"
    with pytest.raises(openai.BadRequestError) as tools:
        client.chat.completions.create(model="any", messages=MESSAGES, tools=[
            {"type": "function", "function": {"name": "f", "parameters": {}}}])
    assert tools.value.param == "tools"
    with pytest.raises(openai.NotFoundError):
        client.embeddings.create(model="any", input="a", encoding_format="float")
