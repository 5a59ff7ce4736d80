"""Going back in a conversation: every cut gets its own text, and costs no more than it must.

A model of each kind of state takes every test; tools/tiny_models.py says what they are.
"""
import itertools

import pytest

import tiny_model
from everwarm import document

# Positions per block of the servers here, and tokens between two states; windows are tiny_model.WINDOW tokens.
SPAN = 16
STATE_EVERY = 64
WINDOW = tiny_model.WINDOW
OPTIONS = ("--block-tokens", str(SPAN), "--state-every", str(STATE_EVERY))


def digits(count):
    """A grammar. Each digit is a token of its own, so that a reply in a history is cut into the tokens that the
    model wrote, whoever cuts it; and so many of them leave it no token without a text."""
    return f"root ::= [0-9]{{{count}}}"


THINKING = 'root ::= "<think>" [0-9]{5,20} "</think>" [0-9]{8}'

# What may be computed besides the new tokens, by architecture: where a state can be gone on from at every
# position of the last blocks, a span; else what is between two states.
SLACK = {**{architecture: SPAN for architecture in ("llama", "gemma3", "gpt-oss", "qwen3moe", "deepseek2")},
         **{architecture: STATE_EVERY for architecture in ("lfm2", "granitehybrid", "qwen35")}}


@pytest.fixture(scope="module", params=SLACK)
def architecture(request):
    return request.param


@pytest.fixture(scope="module")
def model(architecture, tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / f"{architecture}.gguf"
    tiny_model.write(path, architecture=architecture)
    return str(path)


@pytest.fixture
def serve(start, model):
    return lambda: start(*OPTIONS, model=model)


@pytest.fixture
def slack(architecture):
    return SLACK[architecture]


def restarted(server, serve):
    """What was published is durable; a new process goes on."""
    assert server.flush().status == 200
    server.kill()
    return serve()


def computed(answer):
    return answer.prompt_tokens - answer.cached


def history(answer):
    """Tokens of a conversation after its reply."""
    return answer.prompt_tokens + answer.usage["completion_tokens"]


class Conversation:
    """A chat whose every reply is compared with that of a prompt nobody has seen."""

    def __init__(self, word, tokens=3 * WINDOW):
        self.messages = [{"role": "user", "content": document(tokens, word)}]

    def ask(self, server, max_tokens=12):
        answer = server.chat(self.messages, max_tokens, grammar=digits(max_tokens))
        cold = server.cold_chat(self.messages, max_tokens, grammar=digits(max_tokens))
        assert answer.exact == cold.exact, f"{answer.cached} of {answer.prompt_tokens} tokens were cached"
        return answer

    def go_on(self, answer, text):
        self.messages = [*self.messages, {"role": "assistant", "content": answer.text},
                         {"role": "user", "content": text}]


# B-07: a longer cached prompt is never cut back to where it cannot be cut.
def test_every_prefix_of_a_cached_prompt_gets_its_own_text(serve, slack):
    # What has been asked for ends at a resume point; a state before it may stand for it.
    missing = 0 if slack == SPAN else slack
    server = serve()
    whole = server.tokens(document(6 * WINDOW, "zebra"))[:3 * WINDOW]
    assert len(whole) == 3 * WINDOW
    ask = server.tokens("\nThe code word is")
    prompts = [whole, whole[:2 * WINDOW] + ask, whole[:-1], whole[:WINDOW - 1], whole[:WINDOW],
               whole[:WINDOW + 1]]
    replies = [server.cold_complete(tokens).exact for tokens in prompts]
    for tokens, reply in zip(prompts, replies):
        for _ in range(2):
            answer = server.complete(tokens)
            assert answer.exact == reply, f"{len(tokens)} tokens, {answer.cached} cached"
        assert computed(answer) <= 1 + missing
    server = restarted(server, serve)
    for tokens, reply in zip(prompts, replies):
        answer = server.complete(tokens)
        assert answer.exact == reply, f"{len(tokens)} tokens, {answer.cached} cached"
        assert computed(answer) <= 1 + missing


# B-23: what a restart says it has can be gone on from.
@pytest.mark.parametrize("restart", [False, True], ids=["live", "restarted"])
def test_turns_and_regenerations_compute_what_is_new(serve, slack, restart):
    server = serve()
    conversation = Conversation("otter")
    answer = conversation.ask(server)
    for turn in range(2, 6):
        before = history(answer)
        conversation.go_on(answer, f"Question {turn}: and which shelf comes next?")
        if restart:
            server = restarted(server, serve)
        answer = conversation.ask(server)
        assert computed(answer) <= answer.prompt_tokens - before + slack
        if restart:
            assert answer.from_ssd == answer.cached
            server = restarted(server, serve)
        again = conversation.ask(server)
        assert again.exact == answer.exact
        assert computed(again) <= 1 + slack


def test_an_edited_turn_goes_on_from_the_turn_before(serve, slack):
    server = serve()
    conversation = Conversation("heron")
    first = conversation.ask(server)
    conversation.go_on(first, "Which line is the last one?")
    conversation.ask(server)
    conversation.messages[-1] = {"role": "user", "content": "Which line is the first one, then?"}
    edited = conversation.ask(server)
    assert computed(edited) <= edited.prompt_tokens - history(first) + slack
    # And back to the first wording.
    conversation.messages[-1] = {"role": "user", "content": "Which line is the last one?"}
    assert computed(conversation.ask(server)) <= 1 + slack


def test_a_prompt_one_token_shorter_costs_a_span(serve, slack):
    server = serve()
    tokens = server.tokens(document(6 * WINDOW, "ibis"))[:3 * WINDOW + 5]
    server.complete(tokens)
    shorter = server.complete(tokens[:-1])
    assert shorter.exact == server.cold_complete(tokens[:-1]).exact
    assert computed(shorter) <= 1 + slack


def test_a_reply_longer_than_the_window_can_be_regenerated(serve, slack):
    server = serve()
    conversation = Conversation("crane", tokens=2 * WINDOW)
    answer = conversation.ask(server, max_tokens=2 * WINDOW)
    assert answer.usage["completion_tokens"] == 2 * WINDOW
    for _ in range(2):
        again = conversation.ask(server, max_tokens=2 * WINDOW)
        assert again.exact == answer.exact
        assert computed(again) <= 1 + slack
        server = restarted(server, serve)
    conversation.go_on(answer, "Go on.")
    assert computed(conversation.ask(server)) <= len(server.tokens("Go on.")) + 2 * SPAN + slack


def test_interleaved_conversations_do_not_meet(serve, slack):
    server = serve()
    conversations = [Conversation(word) for word in ("zebra", "otter", "heron")]
    answers = [conversation.ask(server) for conversation in conversations]
    for turn, index in itertools.product(range(2, 5), range(3)):
        before = history(answers[index])
        conversations[index].go_on(answers[index], f"Question {turn}?")
        answers[index] = conversations[index].ask(server)
        assert computed(answers[index]) <= answers[index].prompt_tokens - before + slack
        if turn == 3:
            server = restarted(server, serve)


# B-37: the client leaves the thinking out of the history.
def test_thinking_left_out_costs_no_more_than_the_reply(serve, slack):
    server = serve()
    messages = [{"role": "user", "content": document(3 * WINDOW, "stork")}]

    def ask():
        answer = server.chat(messages, 60, grammar=THINKING)
        cold = server.cold_chat(messages, 60, grammar=THINKING)
        assert answer.exact == cold.exact
        return answer

    prompts = []
    for turn in range(1, 4):
        if turn == 3:
            server = restarted(server, serve)
        answer = ask()
        if prompts:
            # All of the prompt before, where the reply to it began.
            assert answer.cached >= prompts[-1] - 1 - slack
        prompts.append(answer.prompt_tokens)
        said = answer.text.split("</think>")[-1]
        assert len(said) == 8
        messages = [*messages, {"role": "assistant", "content": said},
                    {"role": "user", "content": f"Question {turn}?"}]
