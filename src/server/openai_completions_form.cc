#include "server/openai_completions_form.h"

#include <utility>

#include "server/sse.h"

namespace everwarm::server {
namespace {

constexpr char kObject[] = "text_completion";

const char* ReasonWord(engine::FinishReason reason) {
  return reason == engine::FinishReason::kStop ? "stop" : "length";
}

}  // namespace

OpenAiCompletionsForm::OpenAiCompletionsForm(Setup setup)
    : setup_(std::move(setup)), usages_(setup_.beginnings.size()) {
  for (const std::string& beginning : setup_.beginnings) {
    offsets_.push_back(beginning.size());
  }
}

Json OpenAiCompletionsForm::Whole(std::vector<WholeChoice> choices) {
  Json reply = ReplyEnvelope(setup_.identity, kObject);
  reply["choices"] = Json::array();
  for (size_t i = 0; i < choices.size(); ++i) {
    const WholeChoice& choice = choices[i];
    reply["choices"].push_back(Choice(i, setup_.beginnings[i] + choice.text,
                                      choice.tokens,
                                      ReasonWord(choice.finished.reason)));
    usages_[i] = choice.finished.usage;
  }
  reply["usage"] = UsageJson(SumUsage(usages_, setup_.choices_per_prompt));
  return reply;
}

std::string OpenAiCompletionsForm::Begin() {
  std::string bytes;
  for (size_t i = 0; i < setup_.beginnings.size(); ++i) {
    if (!setup_.beginnings[i].empty()) {
      bytes +=
          Chunk(Json::array({Choice(i, setup_.beginnings[i], {}, nullptr)}));
    }
  }
  return bytes;
}

std::string OpenAiCompletionsForm::Text(size_t choice,
                                        const engine::TextEvent& text) {
  return Chunk(Json::array({Choice(choice, text.text, text.tokens, nullptr)}));
}

std::string OpenAiCompletionsForm::Finish(
    size_t choice, const engine::FinishedEvent& finished) {
  usages_[choice] = finished.usage;
  return Chunk(
      Json::array({Choice(choice, "", {}, ReasonWord(finished.reason))}));
}

std::string OpenAiCompletionsForm::End() {
  std::string bytes;
  if (setup_.include_usage) {
    bytes = Chunk(Json::array(),
                  UsageJson(SumUsage(usages_, setup_.choices_per_prompt)));
  }
  return bytes + SseData("[DONE]");
}

std::string OpenAiCompletionsForm::Fail(const ApiError& error) {
  return SseData(ErrorBody(error));
}

std::string OpenAiCompletionsForm::Ping() {
  return SseComment("still computing");
}

Json OpenAiCompletionsForm::Choice(
    size_t choice, std::string_view text,
    const std::vector<engine::ChosenToken>& tokens, Json reason) {
  Json logprobs = nullptr;
  if (setup_.logprobs) {
    logprobs = {{"tokens", Json::array()},
                {"token_logprobs", Json::array()},
                {"top_logprobs", Json::array()},
                {"text_offset", Json::array()}};
    const TextFront& front = *setup_.text_front;
    for (const engine::ChosenToken& token : tokens) {
      const std::string piece = front.Detokenize({&token.chosen.token, 1});
      logprobs["tokens"].push_back(piece);
      logprobs["token_logprobs"].push_back(token.chosen.logprob);
      Json top = Json::object();
      for (const engine::TokenLogprob& one : token.top) {
        top[front.Detokenize({&one.token, 1})] = one.logprob;
      }
      logprobs["top_logprobs"].push_back(std::move(top));
      logprobs["text_offset"].push_back(offsets_[choice]);
      offsets_[choice] += piece.size();
    }
  }
  return {{"index", choice},
          {"text", text},
          {"logprobs", std::move(logprobs)},
          {"finish_reason", std::move(reason)}};
}

std::string OpenAiCompletionsForm::Chunk(Json choices, Json usage) const {
  Json chunk = ReplyEnvelope(setup_.identity, kObject);
  chunk["choices"] = std::move(choices);
  if (setup_.include_usage) {
    chunk["usage"] = std::move(usage);
  }
  return SseData(DumpJson(chunk));
}

}  // namespace everwarm::server
